"""Where a test's clients meet: one engine, one URL, one API."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from tests.conformance.apis import Actor, Api, Front
from tests.conformance.engines import Subject

PATIENCE = 30.0
"""How long a test waits for what has to happen, on a machine that is busy with something else."""


class Stage:
    """Makes clients and actors, and ends all of them when the test is over."""

    def __init__(self, subject: Subject, api: Api, url: str) -> None:
        self.subject, self.api, self.url = subject, api, url
        self._actors: list[Actor] = []
        self._clients: list[Any] = []
        self._tasks: list[asyncio.Task[Any]] = []

    async def client(self, **settings: Any) -> Front:
        """A client of its own, in the hands of an actor of its own."""
        client = await self.api.connect(self.url, **settings)
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
        before = len((await locks.by(self.actor()).inspect(name, kind=kind)).waiters)
        task = self.begin(work)
        looker = locks.by(self.actor())

        async def stands() -> bool:
            return task.done() or len((await looker.inspect(name, kind=kind)).waiters) > before

        await eventually(stands)
        assert not task.done(), f"it did not have to wait: {task}"
        return task

    def silence(self, client: Front) -> None:
        """Let a client die as far as the engine can tell: no heartbeat any more, and no farewell."""
        core = client.target._core
        if core.keeper is not None:
            core.keeper.stop()

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
        await asyncio.gather(*(front.close() for front in closing))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(actor.end() for actor in [*self._actors, *(front.actor for front in closing)]))


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
