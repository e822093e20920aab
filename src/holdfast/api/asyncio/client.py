"""One session with an engine, and what can be made from it, awaited."""

from __future__ import annotations

import asyncio
import builtins
import functools
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from functools import partial
from typing import Any, ParamSpec, TypeVar, Unpack

from holdfast.api import settings
from holdfast.api.asyncio.barrier import Barrier
from holdfast.api.asyncio.cell import Cell
from holdfast.api.asyncio.election import Election
from holdfast.api.asyncio.grant import Grant
from holdfast.api.asyncio.latch import Latch
from holdfast.api.asyncio.lock import AllLocks, Lock, RWLock
from holdfast.api.asyncio.log import Log
from holdfast.api.asyncio.once import Once
from holdfast.api.asyncio.partition import Partition
from holdfast.api.asyncio.stream import Stream
from holdfast.core.names import check_name, check_prefix
from holdfast.locks import breaking, election, handing, several, watching
from holdfast.locks.ability import need_record
from holdfast.locks.barrier import BarrierFront
from holdfast.locks.cell import CellFront
from holdfast.locks.client import Client as Core
from holdfast.locks.hold import Entry
from holdfast.locks.latch import KEEP, LatchFront
from holdfast.locks.log import LogFront
from holdfast.locks.naming import check_function, check_result, namer
from holdfast.locks.partition import PartitionFront, name_member
from holdfast.locks.row_lock import RowOptions, lock_row
from holdfast.locks.spec import Options, Spec, check_seconds, make_spec
from holdfast.model import Epoch, Guarantees, LockEvent, LockInfo
from holdfast.runtime.asyncio import LoopPulse, in_own_thread

P = ParamSpec("P")
R = TypeVar("R")


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
        specs = [self._checked(make_spec("lock", name, **options)) for name in several.in_order(names)]
        return AllLocks(self._core, specs)

    def election(self, name: str, value: str = "", **options: Unpack[Options]) -> Election:
        """An election; `value` is what others see of us while we lead."""
        options["note"] = election.check_value(value)
        return Election(self._core, self._checked(make_spec("election", name, **options)))

    def barrier(self, name: str, parties: int) -> Barrier:
        """Where `parties` wait for each other, generation after generation."""
        self._checked(make_spec("barrier", name, mode="shared"))
        return Barrier(BarrierFront(self._core, name, parties))

    def latch(self, name: str, count: int, *, keep: float = KEEP) -> Latch:
        """Opens when it has been counted down; forgotten `keep` seconds after its last use."""
        return Latch(LatchFront(self._core, check_name(name), count, keep))

    def cell(self, name: str) -> Cell:
        """A versioned value."""
        return Cell(CellFront(self._core, "cell", check_name(name)))

    def once(self, key: str, *, keep: float = KEEP, wait: float | None = None, failures: bool = False) -> Once:
        """Work whose result is recorded for `keep` seconds; a failure too, if `failures` says so."""
        return Once(self._core, self._checked(make_spec("once", key, wait=wait)), keep, failures)

    def partition(
        self, group: str, member: str | None = None, *, on_change: Callable[[Epoch | None], object] | None = None
    ) -> Partition:
        """A member of a group that shares keys; `on_change` is told of every new epoch, None when our place is lost."""
        spec = self._checked(make_spec("partition", group, mode="shared"))
        name = name_member(self._core) if member is None else member
        return Partition(PartitionFront(self._core, spec, name, on_change))

    def log(self, name: str) -> Log:
        """A small append-only log."""
        return Log(LogFront(self._core, check_name(name)))

    async def inspect(self, name: str, *, kind: str = "lock") -> LockInfo:
        """Who holds a lock and who waits for it, in order."""
        core = self._core
        core.check_open()
        return core.shown(await core.verbs.inspect(core.kind(kind), check_name(name), core.until()))

    async def list(self, prefix: str = "", *, kind: str | None = None) -> list[LockInfo]:
        """Every lock in use under a prefix."""
        core = self._core
        core.check_open()
        check_prefix(prefix)
        need_record(core, "list")
        found = await core.verbs.list(prefix, core.kind(kind or ""), core.until())
        return [core.shown(info) for info in found]

    def watch(self, prefix: str = "") -> Stream[LockEvent]:
        """What happens to locks under a prefix, as it happens."""
        return Stream(partial(watching.watch, self._core, check_prefix(prefix)), says_begun=True)

    async def break_lock(self, name: str, *, kind: str = "lock", force: bool = False) -> int:
        """Make every holder let go; how many there were. Returns when they are gone."""
        return await breaking.break_lock(self._core, name, kind, force)

    async def adopt(self, text: str) -> Grant:
        """Take over what another client handed over, with a higher token."""
        taken: builtins.list[Entry] = []
        try:
            await handing.adopt(self._core, text, taken)
            grant = Grant(self._core, taken[0])
        except BaseException:
            await several.let_go(self._core, taken)
            raise
        self._core.unsettled.hand_out(taken[0])
        return grant

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
            check_function(function, awaited=True)
            make_name = namer(name, function)

            @functools.wraps(function)
            async def call(*args: P.args, **kwargs: P.kwargs) -> R:
                async with self.lock(make_name(*args, **kwargs), **options):
                    return check_result(function, await function(*args, **kwargs))

            return call

        return decorate

    def _lock(self, spec: Spec) -> Lock:
        return Lock(self._core, self._checked(spec))

    def _checked(self, spec: Spec) -> Spec:
        return settings.check_supported(self._core, spec)


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
        engine = await in_own_thread(loop, self._given.engine)
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
