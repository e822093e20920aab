"""A transfer between two accounts that lie in two files: both are locked, in one order whoever asks.

    python transfer.py FOLDER FROM TO CENTS

What is in one database needs no lock, but a transaction: `holdfast advise --what several`. That,
or a journal, is also what mends a transfer whose process died between the two writes.
"""

import sys
from pathlib import Path

import holdfast
from holdfast.fence import FileFence

source, target = Path(sys.argv[1], sys.argv[2]), Path(sys.argv[1], sys.argv[3])
cents, fence = int(sys.argv[4]), FileFence()

with holdfast.connect() as locks:
    with locks.lock_all(f"account:{source.name}", f"account:{target.name}", wait=30.0) as grants:
        held = {path: grants[f"account:{path.name}"] for path in (source, target)}
        before = {
            path: int(fence.read(path, grant) or 0) for path, grant in held.items()
        }  # nobody older writes any more
        for path, change in ((source, -cents), (target, cents)):
            fence.write(path, str(before[path] + change), held[path])
        print(f"{source.name} {before[source] - cents}, {target.name} {before[target] + cents}")
