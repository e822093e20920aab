"""What the system knows of other processes: whether they live, and who their parents are.

A zombie has ended, although `kill` still finds it. /proc tells the difference; where there is none
(not on Linux), a process that `kill` finds counts as alive.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ENDED = "ZXx"
"""States of a process that runs no more."""


@dataclass(frozen=True)
class Process:
    """One process, as /proc shows it."""

    pid: int
    parent: int
    group: int
    state: str


def find(pid: int) -> Process | None:
    """The process with this pid, or None."""
    try:
        # The name of the program, in parentheses, may contain anything; the rest follows it.
        words = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
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
    """The processes of a group that have not ended. Empty where there is no /proc."""
    try:
        names = os.listdir("/proc")
    except OSError:
        return
    for name in names:
        found = find(int(name)) if name.isdecimal() else None
        if found is not None and found.group == group and found.state not in ENDED:
            yield found


def is_empty(group: int) -> bool:
    """Whether no process of a group is alive."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        # Its processes belong to another user, and /proc may hide those.
        return False
    return sys.platform.startswith("linux") and next(members(group), None) is None


def descends_from(process: Process, ancestor: int) -> bool:
    """Whether `ancestor` is above a process."""
    seen: Process | None = process
    while seen is not None and seen.parent > 0:
        if seen.parent == ancestor:
            return True
        seen = find(seen.parent)
    return False
