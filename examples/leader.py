"""A leader with a fenced database: one instance leads, and a former leader cannot write any more.

python leader.py DATABASE NAME
"""

import sqlite3
import sys
from contextlib import closing

import holdfast
from holdfast.fence import SqlFence

path, name = sys.argv[1:]
fence = SqlFence()
with closing(sqlite3.connect(path, timeout=30.0)) as database, holdfast.connect() as locks:
    with database:
        database.execute("CREATE TABLE IF NOT EXISTS plan (number INTEGER PRIMARY KEY, made_by TEXT)")
        fence.create(database)  # the table of tokens, if it is not there yet

    election = locks.election("scheduler", value=name)
    with election.campaign() as grant:
        for _ in range(3):
            with database:  # one transaction: the check and the write
                fence.check(database, grant, resource="plan")
                database.execute("INSERT INTO plan (made_by) VALUES (?)", (name,))
        leader = election.leader()
        print(f"{name} led with token {grant.token}; everybody saw {leader.value if leader else 'nobody'}")
