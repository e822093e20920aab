"""Workers that share queues by partition: each queue has one worker, and a dead worker's go to the others.

    python workers.py MEMBERS

Start as many as MEMBERS says: each works through its own queues once all are there.
"""

import sys
import threading

import holdfast

queues = [f"queue-{number}" for number in range(12)]
changed = threading.Event()

with holdfast.connect() as locks:
    with locks.partition("workers", on_change=lambda epoch: changed.set()) as workers:
        while len(workers.members()) < int(sys.argv[1]):
            changed.wait(1.0)
            changed.clear()
        for queue in workers.mine(queues):
            print(queue, "is done with token", workers.token(queue))  # what the queue's own fence is shown
        # Nobody leaves before all have done their share; else the others would get what is left.
        locks.barrier("finished", parties=int(sys.argv[1])).wait(60.0)
