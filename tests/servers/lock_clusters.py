"""Clusters of lock servers for the conformance suite: a fresh one for each test, in one process that can be stopped.

Three starts of Python for each test would take longer than the test. Run as a program this file is that process:
each line it reads is a new cluster, which takes the place of the one before, and each line it writes says that its
servers listen. They share an etcd, each cluster under a name of its own.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from holdfast.core import urls
from holdfast.engines.holdfast.cluster import survey
from holdfast.verify.servers.etcd import EtcdServer, newer_etcd
from holdfast.verify.servers.lock_cluster import SHORTEST_LEASE
from holdfast.verify.servers.process import free_port, wait_until
from tests.servers.host import Host

LEASE = 2
"""With the shortest lease that users may have, no session would end in less than 15 s. With a shorter one than this,
a busy machine would change leaders in the middle of a test."""
SHORTEST_TTL = 3.0 * LEASE
SERVERS = 3

_numbers = itertools.count(1)

lock_cluster_stands_still = Host.of_url_stands_still


@contextmanager
def lock_clusters(_: Path) -> Iterator[Callable[[], str]]:
    """A cluster of its own for each test, as soon as one of its servers leads."""
    with EtcdServer(binary=newer_etcd()) as etcd:
        host = Host("tests.servers.lock_clusters", {SHORTEST_LEASE: str(LEASE)})

        def new() -> str:
            addresses = [f"127.0.0.1:{free_port()}" for _ in range(SERVERS)]
            store = f"{etcd.url}?lease={LEASE}&name=test{next(_numbers)}"
            assert host.ask(json.dumps([store, addresses])) == "listening"
            url = f"holdfast://{','.join(addresses)}"
            wait_until(lambda: survey(urls.parse(url)).healthy, 60.0, "one of the servers leading")
            return host.runs(url)

        try:
            yield new
        finally:
            host.close()


async def _host() -> None:
    from holdfast.server.process import Process
    from holdfast.server.settings import read

    loop = asyncio.get_running_loop()
    running: list[asyncio.Task[None]] = []
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        store, addresses = json.loads(line)
        running = []
        for address in addresses:
            settings = read(None, {"listen": [address], "store": store, "advertise": address})
            process = Process(settings, partial(read, None, {}))
            running.append(loop.create_task(process.run()))
            while not process.addresses and not running[-1].done():  # noqa: ASYNC110 - it has nothing to wait for
                await asyncio.sleep(0.001)
        print("listening", flush=True)


if __name__ == "__main__":
    asyncio.run(_host())
