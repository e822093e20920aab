"""The server's inside without its sockets: for what a test has to see between two bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

import hiredis

from holdfast.core.table import Dictionary
from holdfast.core.table.changes import Change
from holdfast.engines.resp.wire import Part, pack
from holdfast.server.connection import Connection
from holdfast.server.dispatch import Commands
from holdfast.server.limits import Limits
from holdfast.server.logins import Logins
from holdfast.server.memory_store import MemoryStore
from holdfast.server.service import About, Service
from holdfast.server.store import Store
from holdfast.server.users import User, Users


class Line(asyncio.Transport):
    """The other end of a connection: takes what the server writes."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.closed = False
        self.reading = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("test", 0) if name == "peername" else None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += bytes(data)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Served(Protocol):
    """What a connection needs."""

    service: Service
    commands: Commands


class Client:
    """One connection to the inside."""

    def __init__(self, inside: Served, user: User | None = None) -> None:
        self.line = Line()
        self.connection = Connection(inside.service, inside.commands)
        self.connection.connection_made(self.line)
        if user is not None:
            self.connection.user = user
            self.connection.logged_in()
        self._reader = hiredis.Reader()

    def send(self, *parts: Part) -> None:
        self.connection.data_received(pack(parts))

    def replies(self) -> list[Any]:
        """What was written since the last look; pushes not counted."""
        data, self.line.sent = self.line.sent, b""
        self._reader.feed(data)
        found = []
        while (reply := self._reader.gets()) is not False:
            if not isinstance(reply, hiredis.PushNotification):
                found.append(reply)
        return found

    def lose(self) -> None:
        """The connection breaks."""
        self.line.closed = True
        self.connection.connection_lost(None)


class Inside:
    """A service, in the running loop."""

    def __init__(self, store: Store | None = None, limits: Limits | None = None, users: Users | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.broken: list[Exception] = []
        about = About("test", "test", "test", False)
        self.service = Service(
            store or MemoryStore(), self.loop, limits or Limits(), users or Users(), about, self.broken.append
        )
        self.service.begin()
        self.commands = Commands(Logins("test"))

    async def turn(self, count: int = 3) -> None:
        """Let the loop turn a few times."""
        for _ in range(count):
            await asyncio.sleep(0)

    async def settle(self) -> None:
        """Let everything out that was gathered, and what waits for another turn."""
        batches = self.service.batches
        while True:
            await self.turn()
            await batches.idle.wait()
            await self.turn()
            working = any(one._working for one in self.service.connections)
            if batches.idle.is_set() and not working and not batches.output:
                return

    def close(self) -> None:
        self.commands.logins.close()
        if self.service._alarm is not None:
            self.service._alarm.cancel()


SECRET = "x" * 22


async def opened(inside: Inside, session: str, user: User | None = None) -> Client:
    """A connection that speaks for a session."""
    client = Client(inside, user)
    client.send("HF.OPEN", session, SECRET, 60_000)
    await inside.settle()
    client.replies()
    return client


class StillStore(MemoryStore):
    """A store in which no time passes, and whose tokens are the same every time."""

    def load(self) -> Dictionary:
        return Dictionary(1000)

    def now(self) -> float:
        return 1.0


class GatedStore(MemoryStore):
    """A store whose batches are kept when the test says so, with the outcome that it says."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Sequence[Change]] = []
        self.might_block: list[bool] = []
        self.gates: list[asyncio.Future[None]] = []
        self.room = True

    def load(self) -> Dictionary:
        """The table of what was kept, made anew."""
        table = Dictionary(1000)
        for changes in self.kept:
            for change in changes:
                table.put(change)
        return table

    async def keep(self, changes: Sequence[Change], may_block: bool = False) -> None:
        changes = list(changes)
        self.might_block.append(may_block)
        gate = asyncio.get_running_loop().create_future()
        self.gates.append(gate)
        await gate
        self.kept.append(changes)

    def has_room(self) -> bool:
        return self.room

    def let(self, error: Exception | None = None) -> None:
        """Let the batch under way be kept, or fail."""
        gate = self.gates.pop(0)
        if error is None:
            gate.set_result(None)
        else:
            gate.set_exception(error)
