"""The lock server, with the CPU time of its turns and commits: `python -m bench.timed_server FILE serve ...`.

Each turn of the loop and each commit in SQLite's thread that takes long adds a line to FILE: what it was, when it
ended, and its milliseconds of CPU time, which other processes on the machine hardly change. The loop is asyncio's own,
because uvloop's turns cannot be seen.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Any

import uvloop

from holdfast.cli.main import main
from holdfast.server.sqlite_store import SqliteStore

LONG_MS = 5.0


def timed(what: str, work: Callable[..., Any], path: str) -> Callable[..., Any]:
    """The same work, with a line for each time that it takes long."""
    out = open(path, "a", buffering=1)  # noqa: SIM115  it is written to until the process ends

    def run(*arguments: Any, **more: Any) -> Any:
        began = time.thread_time()
        try:
            return work(*arguments, **more)
        finally:
            spent = (time.thread_time() - began) * 1000
            if spent > LONG_MS:
                out.write(f"{what} {time.time()} {spent:.1f}\n")

    return run


if __name__ == "__main__":
    path = sys.argv.pop(1)
    loop: Any = asyncio.SelectorEventLoop
    loop._run_once = timed("turn", loop._run_once, path)
    store: Any = SqliteStore
    store._write = timed("commit", store._write, path)
    uvloop.new_event_loop = loop
    sys.argv[0] = "holdfast"
    main()
