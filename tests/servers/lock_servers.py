"""Lock servers for the conformance suite: a fresh one for each test, all of them in one process that can be stopped.

A start of Python for each test would take longer than the test. Run as a program this file is
that process: each line it reads is a store, each line it writes the port of a new server. Only the
last few of them go on: hundreds that nobody uses any more would keep it busy.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.servers.host import Host

KEPT = 4
"""How many servers a test can have, and whatever it has left behind."""
_numbers = itertools.count(1)

lock_server_stands_still = Host.of_url_stands_still


@contextmanager
def lock_servers(folder: Path) -> Iterator[Callable[[], str]]:
    """A server of its own for each test."""
    host = Host("tests.servers.lock_servers")

    def new() -> str:
        port = host.ask(f"sqlite:///{folder}/{next(_numbers)}.db?ballast_mib=1")
        return host.runs(f"holdfast://127.0.0.1:{port}")

    try:
        yield new
    finally:
        host.close()


async def _host() -> None:
    from holdfast.server.process import Process
    from holdfast.server.settings import read

    loop = asyncio.get_running_loop()
    servers: list[asyncio.Task[None]] = []
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        for old in servers[:-KEPT]:
            old.cancel()
        await asyncio.gather(*servers[:-KEPT], return_exceptions=True)
        del servers[:-KEPT]
        settings = read(None, {"listen": ["127.0.0.1:0"], "store": line.strip()})
        process = Process(settings, partial(read, None, {}))
        servers.append(loop.create_task(process.run()))
        while not process.addresses:  # noqa: ASYNC110 - it has nothing to wait for
            await asyncio.sleep(0.001)
        print(process.addresses[0].rpartition(":")[2], flush=True)


if __name__ == "__main__":
    asyncio.run(_host())
