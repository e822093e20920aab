"""A nightly job on one of N machines: every machine's cron starts it, one does the work.

    python cron_job.py [DAY]

The key has the day in it, so that a machine whose clock is late finds the job done, not free.
"""

import datetime
import os
import sys

import holdfast

day = sys.argv[1] if len(sys.argv) > 1 else datetime.datetime.now(datetime.UTC).date().isoformat()


def nightly(grant: holdfast.Grant) -> str:
    print(f"doing the job of {day}")
    return f"done by process {os.getpid()}"


with holdfast.connect() as locks:  # $HOLDFAST_URL, else this user's own file
    print(locks.once(f"nightly:{day}", keep=7 * 86400.0).run(nightly))
