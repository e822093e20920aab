"""What the children of these tests do. Each is run by `Child("tests.process.programs:NAME", …)`."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path

import holdfast
from tests.faults.child import tell
from tests.faults.history import History


def count_up(url: str, path: str, times: int, locked: bool) -> None:
    """Add one to the number in a file, again and again."""
    counter = Path(path)
    with holdfast.connect(url) as locks:
        lock = locks.lock("counter")
        tell("ready")
        input()
        for _ in range(times):
            with lock if locked else nullcontext():
                number = int(counter.read_text())
                os.sched_yield()
                # Replaced, not rewritten: a reader never finds it empty, only out of date.
                beside = counter.with_suffix(f".{os.getpid()}")
                beside.write_text(str(number + 1))
                beside.replace(counter)
        tell("done")


def take_turns(url: str, path: str, ttl: float, name: str) -> None:
    """Enter and leave for ever, with a cell written now and then, until somebody kills this process."""
    history, me = History(path), os.getpid()
    locks = holdfast.connect(url, ttl=ttl)
    lock, cell = locks.lock(name), locks.cell(f"of-{me}")
    tell("ready")
    turns = 0
    while True:
        with lock as grant:
            history.add("enter", me, grant.token, name)
            os.sched_yield()
            history.add("leave", me, grant.token, name)
        turns += 1
        if turns % 10 == 0:
            cell.set(turns)


def wait_for_ever(url: str, ttl: float, name: str) -> None:
    """Stand in line for a lock that is held."""
    locks = holdfast.connect(url, ttl=ttl)
    tell("ready")
    locks.lock(name).acquire()
    tell("granted")
    input()
