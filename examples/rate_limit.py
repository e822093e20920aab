"""A rate limit by semaphore: at most two calls at once, over all processes.

python rate_limit.py CALLS
"""

import sys
import time

import holdfast

with holdfast.connect() as locks:
    for _ in range(int(sys.argv[1])):
        with locks.semaphore("partner-api", limit=2, wait=60.0) as grant:
            print(f"calling on line {grant.slot} from {time.monotonic():.3f}", end=" ")
            time.sleep(0.02)  # the call
            print(f"to {time.monotonic():.3f}")
