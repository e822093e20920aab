"""A migration that exactly one instance runs, while the others wait for it.

    python migration.py DATABASE

What has been done is in the database itself, in the same transaction: an instance that starts
later, or that takes over from one that was killed, sees it.
"""

import sqlite3
import sys
from contextlib import closing

import holdfast
from holdfast.fence import SqlFence

fence = SqlFence()
with (
    closing(sqlite3.connect(sys.argv[1], timeout=30.0)) as database,
    holdfast.connect() as locks,
    locks.lock("migrate", wait=60.0) as grant,
):
    with database:
        fence.create(database)  # the table of tokens, if it is not there yet
    with database:
        fence.check(database, grant)  # a migration that was paused for too long changes nothing
        version = database.execute("PRAGMA user_version").fetchone()[0]
        if version < 1:
            database.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT)")
            database.execute("PRAGMA user_version = 1")
            print("migrated to version 1")
print("ready")
