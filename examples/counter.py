"""A counter by cell: nobody waits for a lock, and no update is lost.

python counter.py TIMES
"""

import sys

import holdfast

with holdfast.connect() as locks:
    counter = locks.cell("visits")
    for _ in range(int(sys.argv[1])):
        value, version = counter.update(lambda count: (count or 0) + 1)
    print(f"{value} at version {version}")
