"""One server of a cluster, without its sockets, in the running loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from holdfast.core.table import Dictionary, apply
from holdfast.core.table.commands import Command
from holdfast.core.urls import parse
from holdfast.server.cluster.membership import Member
from holdfast.server.cluster.mirror import load
from holdfast.server.cluster.node import Node
from holdfast.server.cluster.store import ClusterStore
from holdfast.server.dispatch import Commands
from holdfast.server.limits import Limits
from holdfast.server.logins import Logins
from holdfast.server.service import About, Service
from holdfast.server.store import Deposed
from holdfast.server.users import Users


class Replica:
    """A node with its store and service. What it is deposed by is passed on, as the process does."""

    def __init__(self, url: str, id_: str = "one") -> None:
        self.store = ClusterStore.from_url(parse(url))
        about = About("test", id_, "etcd", durable=True, replicated=True)
        loop = asyncio.get_running_loop()
        self.service = Service(self.store, loop, Limits(), Users(), about, self._broken)
        self.node = Node(self.store, self.service, Member(id_, f"{id_}.test:7420", "", "test", 0.0))
        self.service.node = self.node
        self.commands = Commands(Logins("test"))
        self.troubles: list[Exception] = []
        self._running: asyncio.Task[None] | None = None

    def _broken(self, error: Exception) -> None:
        self.troubles.append(error)
        if isinstance(error, Deposed):
            self.node.deposed(error)

    async def start(self) -> Replica:
        self._running = asyncio.create_task(self.node.run())
        return self

    async def until(self, holds: Callable[[], bool], within: float = 30.0) -> None:
        """Wait for a condition; whatever ended the node is raised."""
        end = time.monotonic() + within
        while not holds():
            assert time.monotonic() < end, "it did not come to that"
            if self._running is not None and self._running.done():
                self._running.result()
            await asyncio.sleep(0.01)

    async def lead(self) -> Replica:
        """Start it, and wait until it leads."""
        await self.start()
        await self.until(lambda: self.store.leads and self.service.elsewhere is None)
        return self

    async def do(self, command: Command) -> object:
        """Carry out a command, and keep what it changes."""
        table = self.service.table
        outcome = apply(command, self.store.now(), table.answer, table.put)
        await self.store.keep(outcome.changes)
        return outcome.reply

    async def in_etcd(self) -> Dictionary:
        """The table that somebody else would load."""
        mirror, _ = await load(self.store.etcd.call, self.store.keys)
        assert mirror is not None
        return mirror.table

    async def look_away(self) -> None:
        """Let it see nothing of what others do, nor stand for election."""
        assert self._running is not None
        self._running.cancel()
        await asyncio.wait([self._running])

    async def stop(self, in_order: bool = True) -> None:
        """End it; not in order: its lease stays, as after a kill."""
        if in_order:
            await self.node.resign()
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
        if self.node._renewing is not None:
            self.node._renewing.cancel()
        self.node.close()
        self.store.close()
        self.commands.logins.close()
        if self.service._alarm is not None:
            self.service._alarm.cancel()
