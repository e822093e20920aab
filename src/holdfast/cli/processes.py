"""What the system knows of other processes: whether they live, and who their parents are.

A zombie has ended, although `kill` still finds it. /proc tells the difference; where there is none
(not on Linux), `ps` does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast.runtime import machine

PROC = "/proc"
ENDED = "ZXx"
"""States of a process that runs no more."""


@dataclass(frozen=True)
class Process:
    """One process, as /proc or `ps` shows it."""

    pid: int
    parent: int
    group: int
    state: str


def find(pid: int) -> Process | None:
    """The process with this pid, or None."""
    if not os.path.exists(f"{PROC}/self"):
        return next(_listed("-p", str(pid)), None)
    try:
        # The name of the program, in parentheses, may contain anything; the rest follows it.
        words = Path(f"{PROC}/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return Process(pid, int(words[1]), int(words[2]), words[0])
    except (OSError, IndexError, ValueError):
        return None


def is_alive(pid: int) -> bool:
    """Whether a process runs or is stopped."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # one of another user: it exists
    found = find(pid)
    return found is None or found.state not in ENDED


def members(group: int) -> Iterator[Process]:
    """The processes of a group that have not ended."""
    return (found for found in _all() if found.group == group and found.state not in ENDED)


def _all() -> Iterator[Process]:
    if not os.path.exists(f"{PROC}/self"):
        yield from _listed("-ax")
        return
    for name in os.listdir(PROC):
        found = find(int(name)) if name.isdecimal() else None
        if found is not None:
            yield found


def _listed(*which: str) -> Iterator[Process]:
    """What `ps` lists."""
    for line in machine.ask("ps", *which, "-o", "pid=,ppid=,pgid=,state=").splitlines():
        pid, parent, group, state = line.split()
        yield Process(int(pid), int(parent), int(group), state[0])


def is_empty(group: int) -> bool:
    """Whether no process of a group is alive."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        # Its processes belong to another user, and /proc may hide those.
        return False
    seen = list(_all())
    # A system that lists no process at all has told nothing.
    return bool(seen) and not any(found.group == group and found.state not in ENDED for found in seen)


def descends_from(process: Process, ancestor: int) -> bool:
    """Whether `ancestor` is above a process."""
    seen: Process | None = process
    while seen is not None and seen.parent > 0:
        if seen.parent == ancestor:
            return True
        seen = find(seen.parent)
    return False
