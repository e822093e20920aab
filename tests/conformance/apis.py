"""Both APIs in one shape, so that a test is written once.

An actor is somebody who holds and waits: a thread of its own for the blocking API, a task of
its own for asyncio. A front is any public object of either API, used by one actor: what waits
is awaited, everything else is called as it is.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Protocol

import holdfast
from holdfast import aio

WAITS = frozenset(
    {
        "acquire", "try_acquire", "release", "renew", "hand_over", "adopt", "campaign", "leader", "resign", "wait",
        "count_down", "get", "set", "update", "delete", "inspect", "list", "break_lock", "close",
        "run", "forget", "append", "read", "length", "trim", "join", "leave",
    }
)  # fmt: skip
"""Methods that block in one API and are awaited in the other."""


OVER = object()
"""What a stream gives when nothing comes any more."""


class Actor(Protocol):
    """Somebody who does one thing at a time."""

    kept: list[Any]
    """What it was given. A grant that nobody looks at any more would warn that it is still held."""

    async def do(self, work: Callable[..., Any], *args: Any, **options: Any) -> Any: ...

    async def end(self) -> None: ...


class ThreadActor:
    """An actor of the blocking API."""

    def __init__(self) -> None:
        self.kept: list[Any] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="actor")

    async def do(self, work: Callable[..., Any], *args: Any, **options: Any) -> Any:
        call = functools.partial(work, *args, **options)
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    async def end(self) -> None:
        await asyncio.to_thread(self._thread.shutdown)


class TaskActor:
    """An actor of the asyncio API. Cancelling a `do` cancels what the task is doing, not the task's life."""

    def __init__(self) -> None:
        self.kept: list[Any] = []
        self._jobs: asyncio.Queue[tuple[Callable[[], Any], asyncio.Future[Any]]] = asyncio.Queue()
        self._interrupted = False
        self._task = asyncio.create_task(self._live(), name="actor")

    async def _live(self) -> None:
        done: asyncio.Future[Any] | None = None
        while True:
            try:
                call, done = await self._jobs.get()
                done.set_result(await call())
            except asyncio.CancelledError:
                if done is not None:
                    done.cancel()
                if not self._interrupted:
                    raise  # a test that failed has not ended it, but its loop does
                self._interrupted = False
                self._task.uncancel()
            except BaseException as error:  # noqa: BLE001  (whoever asked gets it)
                assert done is not None
                done.set_exception(error)

    async def do(self, work: Callable[..., Any], *args: Any, **options: Any) -> Any:
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._jobs.put_nowait((functools.partial(work, *args, **options), done))
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            if not done.done():
                self._interrupted = True
                self._task.cancel()
                await asyncio.wait({done})
            raise

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})


class Front:
    """A public object of one API, used by one actor."""

    def __init__(self, actor: Actor, target: Any) -> None:
        self.actor, self.target = actor, target

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.target, name)
        # A read-write lock's `read` only names a lock; a log's asks the engine.
        if name in WAITS and type(self.target).__name__ != "RWLock":
            return functools.partial(self._wait, found)
        return functools.partial(self._call, found) if callable(found) else self._front(found)

    async def _wait(self, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
        return self._front(await self.actor.do(method, *args, **options))

    def _call(self, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
        return self._front(method(*args, **options))

    def _front(self, value: Any) -> Any:
        if not type(value).__module__.startswith("holdfast.api."):
            return value
        self.actor.kept.append(value)
        return Front(self.actor, value)

    def by(self, actor: Actor) -> Front:
        """The same object in another actor's hands."""
        return Front(actor, self.target)

    # `with` and `async with`

    async def __aenter__(self) -> Any:
        enter = getattr(self.target, "__aenter__", None) or self.target.__enter__
        return self._front(await self.actor.do(enter))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any:
        leave = getattr(self.target, "__aexit__", None) or self.target.__exit__
        return await self.actor.do(leave, kind, error, trace)

    # Streams

    async def next(self, within: float = 10.0) -> Any:
        """What comes next, if it comes soon; OVER at the end."""
        step = anext if hasattr(self.target, "__anext__") else next
        return await asyncio.wait_for(self.actor.do(step, self.target, OVER), within)

    async def stop(self) -> None:
        """Stop being told."""
        await self.actor.do(getattr(self.target, "aclose", None) or self.target.close)

    # Mappings

    def __getitem__(self, name: str) -> Any:
        return self._front(self.target[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.target)

    def __len__(self) -> int:
        return len(self.target)


class Api(Protocol):
    """One of the two APIs."""

    name: str

    def actor(self) -> Actor: ...

    async def connect(self, url: Any = None, **settings: Any) -> Any: ...

    def function(self, work: Callable[..., Awaitable[Any]], plain: Callable[..., Any]) -> Callable[..., Any]:
        """Of two functions that do the same, the one that this API's decorator takes."""


class BlockingApi:
    """`holdfast`."""

    name = "blocking"

    def actor(self) -> Actor:
        return ThreadActor()

    async def connect(self, url: Any = None, **settings: Any) -> Any:
        return holdfast.connect(url, **settings)

    def function(self, work: Callable[..., Awaitable[Any]], plain: Callable[..., Any]) -> Callable[..., Any]:
        return plain


class AsyncioApi:
    """`holdfast.aio`."""

    name = "aio"

    def actor(self) -> Actor:
        return TaskActor()

    async def connect(self, url: Any = None, **settings: Any) -> Any:
        return await aio.connect(url, **settings)

    def function(self, work: Callable[..., Awaitable[Any]], plain: Callable[..., Any]) -> Callable[..., Any]:
        return work


APIS: tuple[Api, ...] = (BlockingApi(), AsyncioApi())
