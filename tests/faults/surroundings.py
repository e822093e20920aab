"""What a child process sees of itself, told to its test."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

import __main__
from tests.faults.child import tell


def seen() -> dict[str, Any]:
    """All that a program could tell the way it was started by."""
    mask = os.umask(0)
    os.umask(mask)
    return {
        "parent": os.getppid(),
        "leads its session": os.getsid(0) == os.getpid(),
        "leads its group": os.getpgid(0) == os.getpid(),
        "folder": os.getcwd(),
        "environment": dict(os.environ),
        "umask": mask,
        "files": [number for number in range(64) if is_open(number)],
        "signals": {str(number): str(signal.getsignal(number)) for number in signal.valid_signals()},
        "blocked": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
        "threads": len(threading.enumerate()),
        "arguments": sys.argv,
        "path": sys.path,
        "flags": str(sys.flags),
        "main": [__main__.__name__, __main__.__file__, getattr(__main__.__spec__, "name", None)],
        "streams": [[s.encoding, s.errors, s.line_buffering, s.write_through, s.name] for s in streams()],
        "read": sys.stdin.read(),
    }


def is_open(number: int) -> bool:
    """Whether there is an open file of this number. The one that libffi keeps of its own library does not count."""
    try:
        return "/libffi.so" not in os.readlink(f"/proc/self/fd/{number}")
    except FileNotFoundError:
        return False


def streams() -> list[Any]:
    """Standard input, output and errors."""
    return [sys.stdin, sys.stdout, sys.stderr]


def look() -> None:
    """Tell all of it, leave something unflushed, and end with a code."""
    tell(seen())
    print("the end", end="")
    print("of errors", end="", file=sys.stderr)
    sys.exit(3)


def stay() -> None:
    """Wait for a signal."""
    while True:
        signal.pause()
