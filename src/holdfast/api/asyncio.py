"""The asyncio API: the same shapes as the blocking one, with `await`."""

from __future__ import annotations

import asyncio
import functools
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar, Unpack, cast

from holdfast.api import settings
from holdfast.api.blocking import Wait, chosen
from holdfast.api.body import Body
from holdfast.api.entered import Entered
from holdfast.core.names import check_name, check_prefix
from holdfast.errors import InvalidRequest, NotHeld
from holdfast.locks import acquire, breaking, election, handing, several, watching
from holdfast.locks.barrier import BarrierFront
from holdfast.locks.cell import RETRIES, CellFront
from holdfast.locks.client import Client as Core
from holdfast.locks.grant import GrantView
from holdfast.locks.hold import Hold
from holdfast.locks.latch import KEEP, LatchFront
from holdfast.locks.naming import namer
from holdfast.locks.release import release
from holdfast.locks.row_lock import RowOptions, lock_row
from holdfast.locks.spec import Options, Spec, check_seconds, make_spec
from holdfast.model import Guarantees, Leader, LockEvent, LockInfo
from holdfast.runtime.asyncio import LoopPulse

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


class Grant(GrantView):
    __doc__ = GrantView.__doc__

    @property
    def lost(self) -> asyncio.Event:
        """Set once the grant is lost."""
        return cast(asyncio.Event, self._hold.lost_event())

    async def renew(self) -> None:
        """Send a heartbeat now and wait for its answer; it serves everything that this client holds."""
        self.check()
        await self._client.renew()
        self.check()

    async def release(self) -> None:
        """Give the lock back. LockLost if it was lost before, NotHeld if it was released before."""
        try:
            self._give_back_once()
            await release(self._client, self._hold)
        except NotHeld:
            raise
        except BaseException:
            self._released = False
            raise

    async def hand_over(self) -> str:
        """A secret text by which another client may adopt this grant; this one holds until then."""
        self.check()
        return await handing.hand_over(self._client, self._hold)

    async def __aenter__(self) -> Grant:
        self._body = Body([self._hold], self.release)
        return self

    async def __aexit__(self, _: object, error: BaseException | None, __: TracebackType | None) -> None:
        await self._body.end(error)


class Grants(Mapping[str, Grant]):
    """Several grants that are released and lost together."""

    def __init__(self, client: Core, holds: list[Hold]) -> None:
        self._client, self._holds = client, holds
        self._grants = {hold.claim.name: Grant(client, hold) for hold in holds}

    def __getitem__(self, name: str) -> Grant:
        return self._grants[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._grants)

    def __len__(self) -> int:
        return len(self._grants)

    @property
    def valid(self) -> bool:
        """Whether all of them are held now."""
        return all(grant.valid for grant in self.values())

    def check(self) -> None:
        """Raise LockLost or NotHeld unless all of them are held now."""
        for grant in self.values():
            grant.check()

    async def release(self) -> None:
        """Give all of them back. LockLost if they were lost before."""
        await several.release_all(self._client, self._holds)

    async def __aenter__(self) -> Grants:
        self._body = Body(self._holds, self.release)
        return self

    async def __aexit__(self, _: object, error: BaseException | None, __: TracebackType | None) -> None:
        await self._body.end(error)


G = TypeVar("G", Grant, Grants)


class Scoped(ABC, Generic[G]):
    """Something that `async with` takes and gives back; one object serves many tasks."""

    def __init__(self) -> None:
        self._entered: Entered[G] = Entered()

    @abstractmethod
    async def acquire(self, wait: Wait = ...) -> G:
        """Wait for it and take it."""

    async def __aenter__(self) -> G:
        grant = await self.acquire()
        self._entered.push(grant)
        await grant.__aenter__()
        return grant

    async def __aexit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._entered.pop().__aexit__(kind, error, trace)


class Lock(Scoped[Grant]):
    """A lock to be taken: by `async with`, `acquire` or `try_acquire`, as often as needed."""

    def __init__(self, client: Core, spec: Spec) -> None:
        super().__init__()
        self._client, self._spec = client, spec

    @property
    def name(self) -> str:
        """Its name."""
        return self._spec.name

    async def acquire(self, wait: Wait = ...) -> Grant:
        """Wait in line for at most `wait` seconds (None: for ever). NotAcquired after that."""
        taken: list[Hold] = []
        try:
            await acquire.acquire(self._client, self._spec, chosen(wait, self._spec), taken)
            return self._grant(taken[0])
        except BaseException:
            await several.let_go(self._client, taken)
            raise

    async def try_acquire(self) -> Grant | None:
        """Take the lock if it is free now, else None. Never waits."""
        taken: list[Hold] = []
        try:
            await acquire.try_acquire(self._client, self._spec, taken)
            return self._grant(taken[0]) if taken else None
        except BaseException:
            await several.let_go(self._client, taken)
            raise

    def _grant(self, hold: Hold) -> Grant:
        grant = Grant(self._client, hold)
        grant._tell(self._spec.on_lost)
        return grant

    def __repr__(self) -> str:
        return f"<{self._spec.kind} {self._spec.name!r} on {self._client}>"


class RWLock:
    """Many readers or one writer, in the order of their arrival."""

    def __init__(self, read: Lock, write: Lock) -> None:
        self._read, self._write = read, write

    def read(self) -> Lock:
        """The lock for reading."""
        return self._read

    def write(self) -> Lock:
        """The lock for writing: the same as `lock()` on this name."""
        return self._write


class AllLocks(Scoped[Grants]):
    """Several locks to be taken together: all or none."""

    def __init__(self, client: Core, specs: list[Spec]) -> None:
        super().__init__()
        self._client, self._specs = client, specs

    async def acquire(self, wait: Wait = ...) -> Grants:
        """Take all of them within `wait` seconds, or none."""
        taken: list[Hold] = []
        try:
            await several.acquire_all(self._client, self._specs, chosen(wait, self._specs[0]), taken)
            return Grants(self._client, taken)
        except BaseException:
            await several.let_go(self._client, taken)
            raise

    async def try_acquire(self) -> Grants | None:
        """Take all of them if they are free now, else None."""
        taken: list[Hold] = []
        try:
            await several.try_acquire_all(self._client, self._specs, taken)
            return Grants(self._client, taken) if taken else None
        except BaseException:
            await several.let_go(self._client, taken)
            raise


class Election:
    """At most one leader, which stands for a value."""

    def __init__(self, client: Core, spec: Spec) -> None:
        self._client, self._spec = client, spec
        self._lock = Lock(client, spec)
        self._grant: Grant | None = None

    async def campaign(self, wait: Wait = ...) -> Grant:
        """Stand in line to lead. The grant is the right to lead, until it is released or lost."""
        self._grant = await self._lock.acquire(wait)
        return self._grant

    async def leader(self) -> Leader | None:
        """Who leads now."""
        return await election.leader(self._client, self._spec.name)

    def observe(self) -> Stream[Leader | None]:
        """Who leads, now and after every change."""
        return Stream(election.observe(self._client, self._spec.name))

    async def resign(self) -> None:
        """Stop leading. Nothing happens if we do not lead."""
        grant, self._grant = self._grant, None
        if grant is not None and grant.valid:
            await grant.release()


class Barrier:
    """Where `parties` wait for each other."""

    def __init__(self, front: BarrierFront) -> None:
        self._front = front

    async def wait(self, wait: float | None = None) -> int:
        """Wait for the other parties; the generation that went through. NotAcquired if they do not come in time."""
        return await self._front.wait(check_seconds("wait", wait))


class Latch:
    """Opens for good when it has been counted down to zero."""

    def __init__(self, front: LatchFront) -> None:
        self._front = front

    async def count_down(self, n: int = 1) -> int:
        """Count down; how many are missing now."""
        return await self._front.count_down(n)

    async def wait(self, wait: float | None = None) -> None:
        """Wait until the count is zero. NotAcquired if that takes longer than `wait`."""
        await self._front.wait(check_seconds("wait", wait))


class Cell:
    """A versioned value, changed by compare-and-swap."""

    def __init__(self, front: CellFront) -> None:
        self._front = front

    async def get(self) -> tuple[Any, int]:
        """The value and its version; `(None, 0)` if there is none."""
        return await self._front.get()

    async def set(self, value: Any, version: int | None = None) -> int:
        """Write if the version is still this one (0: no value yet; None: whatever it is). Returns the new version."""
        return await self._front.set(value, version)

    async def update(self, change: Callable[[Any], Any], retries: int = RETRIES) -> tuple[Any, int]:
        """Replace the value by `change(value)`, again if somebody else was faster."""
        return await self._front.update(change, retries)

    async def delete(self, version: int | None = None) -> None:
        """Delete if the version is still this one."""
        await self._front.delete(version)

    def watch(self) -> Stream[tuple[Any, int]]:
        """The value and its version, now and after every change."""
        return Stream(self._front.watch())


class Stream(Generic[T]):
    """What keeps coming, as an async iterator, from the start of its `async with` or else from the first `anext`.

    Close it, or leave its `async with`, to stop being told.
    """

    def __init__(self, source: AsyncIterator[T], *, says_begun: bool = False) -> None:
        self._source, self._to_begin = source, says_begun

    async def _begin(self) -> None:
        if self._to_begin:
            self._to_begin = False
            await self._source.__anext__()

    def __aiter__(self) -> Stream[T]:
        return self

    async def __anext__(self) -> T:
        await self._begin()
        return await self._source.__anext__()

    async def aclose(self) -> None:
        """Stop being told."""
        await self._source.aclose()  # type: ignore[attr-defined]

    async def __aenter__(self) -> Stream[T]:
        await self._begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class Client:
    """One session with an engine. It serves many tasks; close it, or leave its `async with`, to release everything."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def __repr__(self) -> str:
        return f"<holdfast.aio {self._core}>"

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the session, which releases everything that is held."""
        await self._core.close()

    @property
    def guarantees(self) -> Guarantees:
        """What the engine promises."""
        return self._core.engine.guarantees

    def lock(self, name: str, *, subtree: bool = False, **options: Unpack[Options]) -> Lock:
        """An exclusive lock. `subtree` covers everything under its name too."""
        return self._lock(make_spec("lock", name, subtree=subtree, **options))

    def rwlock(self, name: str, *, subtree: bool = False, **options: Unpack[Options]) -> RWLock:
        """A lock that many readers or one writer may hold; neither starves."""
        write = make_spec("lock", name, subtree=subtree, **options)
        return RWLock(self._lock(write.shared()), self._lock(write))

    def semaphore(self, name: str, limit: int, **options: Unpack[Options]) -> Lock:
        """At most `limit` grants at once; `grant.slot` is the permit."""
        return self._lock(make_spec("semaphore", name, limit=limit, **options))

    def lock_all(self, *names: str, **options: Unpack[Options]) -> AllLocks:
        """Several locks, all or none, taken in one order whoever asks."""
        return AllLocks(self._core, [make_spec("lock", name, **options) for name in several.in_order(names)])

    def election(self, name: str, value: str = "", **options: Unpack[Options]) -> Election:
        """An election; `value` is what others see of us while we lead."""
        options["note"] = election.check_value(value)
        return Election(self._core, make_spec("election", name, **options))

    def barrier(self, name: str, parties: int) -> Barrier:
        """Where `parties` wait for each other, generation after generation."""
        self._lock(make_spec("barrier", name, mode="shared"))
        return Barrier(BarrierFront(self._core, name, parties))

    def latch(self, name: str, count: int, *, keep: float = KEEP) -> Latch:
        """Opens when it has been counted down; forgotten `keep` seconds after its last use."""
        return Latch(LatchFront(self._core, check_name(name), count, keep))

    def cell(self, name: str) -> Cell:
        """A versioned value."""
        return Cell(CellFront(self._core, "cell", check_name(name)))

    async def inspect(self, name: str, *, kind: str = "lock") -> LockInfo:
        """Who holds a lock and who waits for it, in order."""
        core = self._core
        core.check_open()
        return core.shown(await core.verbs.inspect(core.kind(kind), check_name(name), core.until()))

    async def list(self, prefix: str = "", *, kind: str | None = None) -> list[LockInfo]:
        """Every lock in use under a prefix."""
        core = self._core
        core.check_open()
        found = await core.verbs.list(check_prefix(prefix), core.kind(kind or ""), core.until())
        return [core.shown(info) for info in found]

    def watch(self, prefix: str = "") -> Stream[LockEvent]:
        """What happens to locks under a prefix, as it happens."""
        return Stream(watching.watch(self._core, check_prefix(prefix)), says_begun=True)

    async def break_lock(self, name: str, *, kind: str = "lock", force: bool = False) -> int:
        """Make every holder let go; how many there were. Returns when they are gone."""
        return await breaking.break_lock(self._core, name, kind, force)

    async def adopt(self, text: str) -> Grant:
        """Take over what another client handed over, with a higher token."""
        return Grant(self._core, await handing.adopt(self._core, text))

    async def row_lock(
        self, connection: Any, table: str, key: Any, **options: Unpack[RowOptions]
    ) -> dict[str, Any] | None:
        """Lock a database row until the caller's transaction ends; the row, or None if there is none."""
        return await lock_row(connection, table, key, **options)

    def locked(
        self, name: str, **options: Unpack[Options]
    ) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Coroutine[Any, Any, R]]]:
        """Run a coroutine function under a lock whose name is made from its arguments: `"invoice:{invoice_id}"`."""

        def decorate(function: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R]]:
            if not asyncio.iscoroutinefunction(function):
                raise InvalidRequest("function", function.__name__, "a plain function needs holdfast.connect()")
            make_name = namer(name, function)

            @functools.wraps(function)
            async def call(*args: P.args, **kwargs: P.kwargs) -> R:
                async with self.lock(make_name(*args, **kwargs), **options):
                    return await function(*args, **kwargs)

            return call

        return decorate

    def _lock(self, spec: Spec) -> Lock:
        return Lock(self._core, settings.check_supported(self.guarantees, str(self._core), spec))


class Connecting:
    """A client to be: `await` it, or enter it with `async with`."""

    def __init__(self, given: settings.Settings, max_stall: float) -> None:
        self._given, self._max_stall = given, max_stall
        self._client: Client

    def __await__(self) -> Generator[Any, None, Client]:
        return self._connect().__await__()

    async def __aenter__(self) -> Client:
        self._client = await self._connect()
        return self._client

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def _connect(self) -> Client:
        loop = asyncio.get_running_loop()
        # Opening may have to wait for a busy file or a far server: not on the loop.
        engine = await asyncio.to_thread(self._given.engine)
        pulse = LoopPulse(loop)
        core = self._given.core(engine, lambda: engine.asyncio(loop), max_stall=self._max_stall, stalled=pulse.stalled)
        return Client(core)


def connect(
    url: object = None,
    *,
    ttl: float = settings.DEFAULT_TTL,
    namespace: str = settings.DEFAULT_NAMESPACE,
    app: str | None = None,
    require: Iterable[str] = (),
    max_stall: float = settings.DEFAULT_MAX_STALL,
) -> Connecting:
    """Connect to an engine: `url`, else `$HOLDFAST_URL`, else the embedded SQLite file of this user.

    In place of a URL, an existing client of another library (a psycopg connection or pool, …) lends its settings.

    `ttl` is how long what this client holds outlives it. `app` is what people see of it.
    `require` names guarantees that the engine has to give, or WeakerGuarantee is raised.
    `max_stall`: heartbeats stop for an event loop that has not turned for so many seconds.
    """
    stall = check_seconds("max_stall", max_stall, least=0.1)
    return Connecting(
        settings.make_settings(url, ttl, namespace, app, require), float("inf") if stall is None else stall
    )
