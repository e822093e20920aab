"""A log of who was inside, written by many processes, and the judge of it.

Each line is one `write` to a file opened for appending, so the order of the lines is the order of
what happened. `enter` is written after the grant and `leave` before the release: two that are
inside at the same time by the log were inside at the same time.
"""

from __future__ import annotations

import os
from pathlib import Path


class History:
    """The log. Every process opens its own; nothing is buffered."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def add(self, what: str, who: int, token: int = 0, name: str = "k") -> None:
        """Add one line: `enter`, `leave`, or `dead` once a process is known to be gone."""
        os.write(self._file, f"{what} {who} {token} {name}\n".encode())

    def close(self) -> None:
        os.close(self._file)

    def entries(self) -> list[tuple[str, int, int, str]]:
        """Everything that was written."""
        lines = (line.split() for line in self.path.read_text().splitlines())
        return [(what, int(who), int(token), name) for what, who, token, name in lines]


def violations(entries: list[tuple[str, int, int, str]]) -> list[str]:
    """Where two were inside together, or a token did not grow. Empty if all was well."""
    found: list[str] = []
    inside: dict[str, int] = {}
    highest: dict[str, int] = {}
    for number, (what, who, token, name) in enumerate(entries, 1):
        if what == "enter":
            if name in inside:
                found.append(f"line {number}: {who} entered {name!r} while {inside[name]} was inside")
            if token <= highest.get(name, 0):
                found.append(f"line {number}: token {token} of {who} is not above {highest[name]}")
            inside[name], highest[name] = who, max(token, highest.get(name, 0))
        elif what == "leave":
            if inside.pop(name, who) != who:
                found.append(f"line {number}: {who} left {name!r} while somebody else was inside")
        else:
            for held in [held for held, holder in inside.items() if holder == who]:
                del inside[held]
    return found
