"""Code, run as `python -c` does, in a process that may be forked: `python -m tests.faults.code CODE ARGS`."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    _, code, *sys.argv[1:] = sys.argv
    exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
