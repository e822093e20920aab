"""A lock server whose time of day can be set while it works: this module, a file, then as `holdfast serve`.

In its own process, for everything that is written in Python; clocks that only count seconds go on as they did.
"""

from __future__ import annotations

import mmap
import runpy
import struct
import sys
import time
from pathlib import Path

_SECONDS = struct.Struct("d")


def set_ahead(path: Path, seconds: float) -> None:
    """Let whoever runs by this file be so many seconds ahead of the machine, from now on."""
    if not path.exists():
        path.write_bytes(_SECONDS.pack(0.0))
    with path.open("r+b") as file:
        file.write(_SECONDS.pack(seconds))


class TimeOfDay:
    """The machine's, and what a file adds to it."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._file = mmap.mmap(file.fileno(), _SECONDS.size)
        self._machine = time.time

    def __call__(self) -> float:
        ahead: float = _SECONDS.unpack_from(self._file)[0]
        return self._machine() + ahead


def main() -> None:
    """Set the clock, then be the command line: what it imports finds no other time."""
    _, path, *arguments = sys.argv
    time.time = TimeOfDay(Path(path))
    sys.argv = ["holdfast", *arguments]
    runpy.run_module("holdfast.cli.main", run_name="__main__")


if __name__ == "__main__":
    main()
