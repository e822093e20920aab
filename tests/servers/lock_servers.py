"""Lock servers for the conformance suite: a fresh one for each test, all of them in one process that can be stopped.

A start of Python for each test would take longer than the test. Run as a program this file is
that process: each line it reads is a store, each line it writes the port of a new server.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from holdfast.verify.servers.process import stands_still, wait_until

_numbers = itertools.count(1)
_hosts: dict[int, int] = {}
"""By port of a server: the process that it runs in."""


class LockServers:
    """A process with many lock servers in it, each with a port and a store of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.servers.lock_servers"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def new(self) -> str:
        """The URL of a server that nobody has used."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"sqlite:///{self.folder}/{next(_numbers)}.db\n")
        port = int(self._process.stdout.readline())
        _hosts[port] = self._process.pid
        return f"holdfast://127.0.0.1:{port}"

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def lock_servers(folder: Path) -> Iterator[Callable[[], str]]:
    """A server of its own for each test."""
    servers = LockServers(folder)
    try:
        yield servers.new
    finally:
        servers.close()


@contextmanager
def lock_server_stands_still(url: str) -> Iterator[None]:
    """Its process is stopped: connections stay open, nothing is answered."""
    host = _hosts[int(url.rpartition(":")[2])]
    os.kill(host, signal.SIGSTOP)
    wait_until(lambda: stands_still(host), 60.0, "the lock servers standing still")
    try:
        yield
    finally:
        os.kill(host, signal.SIGCONT)


async def _host() -> None:
    from holdfast.server.process import Process
    from holdfast.server.settings import read

    loop = asyncio.get_running_loop()
    servers: list[asyncio.Task[None]] = []
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        settings = read(None, {"listen": ["127.0.0.1:0"], "store": line.strip()})
        process = Process(settings, partial(read, None, {}))
        servers.append(loop.create_task(process.run()))
        while not process.addresses:  # noqa: ASYNC110 - it has nothing to wait for
            await asyncio.sleep(0.001)
        print(process.addresses[0].rpartition(":")[2], flush=True)


if __name__ == "__main__":
    asyncio.run(_host())
