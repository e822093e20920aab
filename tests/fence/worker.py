"""Processes that count under a lock; some stop themselves (SIGSTOP) between a read and a write.

    python -m tests.fence.worker '{"counter": …, "where": …, "locks": URL, "processes": …, …}'

The first process imports everything, then forks the others and wakes those that are stopped past their
ttl. If `go` names a file it tells of them instead, and each stops again until that file is there.

A worker uses the token as a number, not the grant: its write is the one that is already under way when
the pause comes, so that no look at the grant can help. At the end the counts of updates done and refused
are told.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import traceback
from typing import Any

import holdfast
from holdfast.errors import LockLost, StaleToken
from tests.fence.counters import Counter, open_counter


def count(plan: dict[str, Any], seed: int) -> dict[str, int]:
    """What one process does."""
    chance = random.Random(seed)
    stops = {chance.randrange(plan["share"])} if seed < plan["stopped"] else set()
    counter = open_counter(plan["counter"], plan["where"])
    done = refused = 0
    with holdfast.connect(plan["locks"], ttl=plan["ttl"]) as locks:
        while done < plan["share"]:
            try:
                with locks.lock("counter") as grant:
                    for _ in range(min(plan["batch"], plan["share"] - done)):
                        increment(counter, grant.token if plan["fenced"] else None, stops, done, plan["go"])
                        done += 1
            except StaleToken:
                refused += 1
            except LockLost:
                continue  # What was written under it was accepted, or refused, by the fence.
    counter.close()
    return {"done": done, "refused": refused}


def increment(counter: Counter, token: int | None, stops: set[int], number: int, go: str | None) -> None:
    # A write of a former holder that is on its way must not come between this and our own: see docs/fencing.md.
    value = counter.read(token)
    if number in stops:
        stops.remove(number)
        os.kill(os.getpid(), signal.SIGSTOP)
        while go is not None and not os.path.exists(go):
            os.kill(os.getpid(), signal.SIGSTOP)
    counter.write(value + 1, token)


def fork(plan: dict[str, Any], seed: int) -> tuple[int, int]:
    """Start a process; its id, and where it tells what it did."""
    readable, writable = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writable)
        return pid, readable
    try:
        os.write(writable, json.dumps(count(plan, seed)).encode())
        os._exit(0)
    finally:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def main(plan: dict[str, Any]) -> None:
    started = dict(fork(plan, seed) for seed in range(plan["processes"]))
    running = set(started)
    while running:
        pid, status = os.waitpid(-1, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            if plan["go"] is None:
                threading.Timer(plan["ttl"] * 2, os.kill, (pid, signal.SIGCONT)).start()
            else:
                print(json.dumps({"stopped": pid}), flush=True)
            continue
        running.remove(pid)
        assert status == 0, f"a worker failed: {status}"
    told = [json.loads(os.read(readable, 4096)) for readable in started.values()]
    print(json.dumps({key: sum(one[key] for one in told) for key in ("done", "refused")}), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
