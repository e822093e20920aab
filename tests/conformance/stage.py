"""Where a test's clients meet: one engine, one URL, one API."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import holdfast
from holdfast import aio
from tests.conformance.apis import Actor, Api, Front
from tests.conformance.engines import Subject, TakeAway

PATIENCE = 30.0
"""How long a test waits for what has to happen, on a machine that is busy with something else."""


Breaker = Callable[[str], None]
"""Makes whoever holds a lock lose it."""


class Stage:
    """Makes clients and actors, and ends all of them when the test is over."""

    def __init__(self, subject: Subject, api: Api, url: str) -> None:
        self.subject, self.api, self.url = subject, api, url
        self._actors: list[Actor] = []
        self._clients: list[Any] = []
        self._tasks: list[asyncio.Task[Any]] = []

    async def client(self, **settings: Any) -> Front:
        """A client of its own, in the hands of an actor of its own."""
        client = await self.api.connect(self.url, **{"ttl": self.subject.ttl, **settings})
        self._clients.append(client)
        return Front(self.actor(), client)

    def actor(self) -> Actor:
        """Somebody else: another thread or task."""
        actor = self.api.actor()
        self._actors.append(actor)
        return actor

    def another(self, front: Front) -> Front:
        """The same client in the hands of another thread or task."""
        return front.by(self.actor())

    def begin(self, work: Awaitable[Any]) -> asyncio.Task[Any]:
        """Let something go on beside the test."""
        task = asyncio.ensure_future(work)
        self._tasks.append(task)
        return task

    async def queued(self, locks: Front, name: str, work: Awaitable[Any], *, kind: str = "lock") -> asyncio.Task[Any]:
        """Begin an acquire, and go on when it stands in line."""
        looker = locks.by(self.actor())
        before = await self._in_line(looker, name, kind)
        task = self.begin(work)

        async def stands() -> bool:
            return task.done() or await self._in_line(looker, name, kind) > before

        await eventually(stands)
        assert not task.done(), f"it did not have to wait: {task}"
        return task

    async def _in_line(self, looker: Front, name: str, kind: str) -> int:
        if looker.guarantees.fair:
            return len((await looker.inspect(name, kind=kind)).waiters)
        # There is no line that others could see: only whoever waits knows that it does.
        return sum(len(client._core.waiting) for client in self._clients)

    async def in_use(self, looker: Front, *names: str) -> list[str]:
        """Which locks are in use, in order: of all that there are, or at least of these."""
        if looker.guarantees.recorded:
            return sorted(info.name for info in await looker.list())
        return sorted([name for name in names if (await looker.inspect(name)).holders])

    async def take_away(self, name: str, by: Front, *, kind: str = "lock", force: bool = False) -> None:
        """Make whoever holds a lock lose it."""
        if by.guarantees.recorded:
            await by.break_lock(name, kind=kind, force=force)
        else:
            info = await by.inspect(name, kind=kind)
            await asyncio.to_thread(taking_away(self.subject), self.url, info)

    def silence(self, client: Front) -> None:
        """Let a client die as far as the engine can tell: no heartbeat any more, and no farewell."""
        core = client.target._core
        if core.keeper is not None:
            core.keeper.stop()
        if self.subject.hang_up is not None:
            self.subject.hang_up(core.engine)

    @contextmanager
    def hurry(self, client: Front) -> Iterator[None]:
        """Let a client's requests go unanswered for half a second only, so that a test need not wait for more."""
        core = client.target._core
        usual, core.call_limit = core.call_limit, 0.5
        yield
        core.call_limit = usual

    def outage(self) -> AbstractContextManager[None]:
        """The engine cannot be reached while this lasts."""
        assert self.subject.outage is not None
        return self.subject.outage(self.url)

    async def end(self) -> None:
        """Close every client, which wakes whoever still waits, then end the actors."""
        closing = [Front(self.api.actor(), client) for client in self._clients]
        closed = await asyncio.gather(*(front.close() for front in closing), return_exceptions=True)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(actor.end() for actor in [*self._actors, *(front.actor for front in closing)]))
        for problem in closed:
            if isinstance(problem, BaseException):
                raise problem


def in_line(looker: holdfast.Client, name: str, waiter: aio.Client) -> bool:
    """Whether somebody is seen to stand in line; where there is none, whether somebody waits."""
    if looker.guarantees.fair:
        return bool(looker.inspect(name).waiters)
    return bool(waiter._core.waiting)


def taking_away(subject: Subject) -> TakeAway:
    """How a lock is taken from its holder where no operator can break it."""
    assert subject.take_away is not None, "nothing is on record: it has to say how a lock can be lost"
    return subject.take_away


async def eventually(condition: Callable[[], bool | Awaitable[bool]], within: float = PATIENCE) -> None:
    """Wait until a condition holds; fail if that takes longer than `within` seconds."""
    until = time.monotonic() + within
    while True:
        held = condition()
        if held if isinstance(held, bool) else await held:
            return
        assert time.monotonic() < until, f"not within {within:g} s"
        await asyncio.sleep(0.005)


async def soon(work: Awaitable[Any]) -> Any:
    """The outcome of what has to end by itself."""
    return await asyncio.wait_for(work, PATIENCE)
