"""The blocking API."""

from __future__ import annotations

import asyncio
import functools
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from types import EllipsisType, TracebackType
from typing import Any, Generic, ParamSpec, TypeVar, Unpack, cast

from holdfast.api import settings
from holdfast.api.entered import Entered
from holdfast.core.names import check_name, check_prefix
from holdfast.errors import HoldfastError, InvalidRequest, LockLost, NotHeld
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
from holdfast.runtime.blocking import run

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")
Wait = float | None | EllipsisType
"""Seconds, None for ever, or `...` for what the lock was built with."""


class Grant(GrantView):
    __doc__ = GrantView.__doc__

    @property
    def lost(self) -> threading.Event:
        """Set once the grant is lost."""
        return cast(threading.Event, self._hold.lost_event())

    def renew(self) -> None:
        """Send a heartbeat now and wait for its answer; it serves everything that this client holds."""
        self.check()
        run(self._client.renew())
        self.check()

    def release(self) -> None:
        """Give the lock back. LockLost if it was lost before, NotHeld if it was released before."""
        try:
            self._give_back_once()
            run(release(self._client, self._hold))
        except NotHeld:
            raise
        except BaseException:
            self._released = False
            raise

    def hand_over(self) -> str:
        """A secret text by which another client may adopt this grant; this one holds until then."""
        self.check()
        return run(handing.hand_over(self._client, self._hold))

    def __enter__(self) -> Grant:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: TracebackType | None) -> None:
        end_body(self.release, error)


def end_body(give_back: Callable[[], None], error: BaseException | None) -> None:
    """Release at the end of a `with`. What the body raised comes first; a loss is noted on it."""
    try:
        give_back()
    except LockLost as lost:
        if error is None:
            raise
        error.add_note(str(lost))
    except KeyboardInterrupt:
        # It may have come before the release began.
        with suppress(HoldfastError):
            give_back()
        raise


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

    def release(self) -> None:
        """Give all of them back. LockLost if they were lost before."""
        run(several.release_all(self._client, self._holds))

    def __enter__(self) -> Grants:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: TracebackType | None) -> None:
        end_body(self.release, error)


G = TypeVar("G", Grant, Grants)


class Scoped(ABC, Generic[G]):
    """Something that `with` takes and gives back; one object serves many threads."""

    def __init__(self) -> None:
        self._entered: Entered[G] = Entered()

    @abstractmethod
    def acquire(self, wait: Wait = ...) -> G:
        """Wait for it and take it."""

    def __enter__(self) -> G:
        grant = self.acquire()
        try:
            self._entered.push(grant)
            return grant
        except BaseException:
            grant.release()
            raise

    def __exit__(self, _: object, error: BaseException | None, __: TracebackType | None) -> None:
        end_body(self._entered.pop().release, error)


class Lock(Scoped[Grant]):
    """A lock to be taken: by `with`, `acquire` or `try_acquire`, as often as needed."""

    def __init__(self, client: Core, spec: Spec) -> None:
        super().__init__()
        self._client, self._spec = client, spec

    @property
    def name(self) -> str:
        """Its name."""
        return self._spec.name

    def acquire(self, wait: Wait = ...) -> Grant:
        """Wait in line for at most `wait` seconds (None: for ever). NotAcquired after that."""
        taken: list[Hold] = []
        try:
            run(acquire.acquire(self._client, self._spec, chosen(wait, self._spec), taken))
            return self._grant(taken[0])
        except BaseException:
            run(several.let_go(self._client, taken))
            raise

    def try_acquire(self) -> Grant | None:
        """Take the lock if it is free now, else None. Never waits."""
        taken: list[Hold] = []
        try:
            run(acquire.try_acquire(self._client, self._spec, taken))
            return self._grant(taken[0]) if taken else None
        except BaseException:
            run(several.let_go(self._client, taken))
            raise

    def _grant(self, hold: Hold) -> Grant:
        grant = Grant(self._client, hold)
        grant._tell(self._spec.on_lost)
        return grant

    def __repr__(self) -> str:
        return f"<{self._spec.kind} {self._spec.name!r} on {self._client}>"


def chosen(wait: Wait, spec: Spec) -> float | None:
    """How long to wait: what the call says, else what the lock was built with."""
    return spec.wait if isinstance(wait, EllipsisType) else check_seconds("wait", wait)


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

    def acquire(self, wait: Wait = ...) -> Grants:
        """Take all of them within `wait` seconds, or none."""
        taken: list[Hold] = []
        try:
            run(several.acquire_all(self._client, self._specs, chosen(wait, self._specs[0]), taken))
            return Grants(self._client, taken)
        except BaseException:
            run(several.let_go(self._client, taken))
            raise

    def try_acquire(self) -> Grants | None:
        """Take all of them if they are free now, else None."""
        taken: list[Hold] = []
        try:
            run(several.try_acquire_all(self._client, self._specs, taken))
            return Grants(self._client, taken) if taken else None
        except BaseException:
            run(several.let_go(self._client, taken))
            raise


class Election:
    """At most one leader, which stands for a value."""

    def __init__(self, client: Core, spec: Spec) -> None:
        self._client, self._spec = client, spec
        self._lock = Lock(client, spec)
        self._grant: Grant | None = None

    def campaign(self, wait: Wait = ...) -> Grant:
        """Stand in line to lead. The grant is the right to lead, until it is released or lost."""
        self._grant = self._lock.acquire(wait)
        return self._grant

    def leader(self) -> Leader | None:
        """Who leads now."""
        return run(election.leader(self._client, self._spec.name))

    def observe(self) -> Stream[Leader | None]:
        """Who leads, now and after every change."""
        return Stream(election.observe(self._client, self._spec.name))

    def resign(self) -> None:
        """Stop leading. Nothing happens if we do not lead."""
        grant, self._grant = self._grant, None
        if grant is not None and grant.valid:
            grant.release()


class Barrier:
    """Where `parties` wait for each other."""

    def __init__(self, front: BarrierFront) -> None:
        self._front = front

    def wait(self, wait: float | None = None) -> int:
        """Wait for the other parties; the generation that went through. NotAcquired if they do not come in time."""
        return run(self._front.wait(check_seconds("wait", wait)))


class Latch:
    """Opens for good when it has been counted down to zero."""

    def __init__(self, front: LatchFront) -> None:
        self._front = front

    def count_down(self, n: int = 1) -> int:
        """Count down; how many are missing now."""
        return run(self._front.count_down(n))

    def wait(self, wait: float | None = None) -> None:
        """Wait until the count is zero. NotAcquired if that takes longer than `wait`."""
        run(self._front.wait(check_seconds("wait", wait)))


class Cell:
    """A versioned value, changed by compare-and-swap."""

    def __init__(self, front: CellFront) -> None:
        self._front = front

    def get(self) -> tuple[Any, int]:
        """The value and its version; `(None, 0)` if there is none."""
        return run(self._front.get())

    def set(self, value: Any, version: int | None = None) -> int:
        """Write if the version is still this one (0: no value yet; None: whatever it is). Returns the new version."""
        return run(self._front.set(value, version))

    def update(self, change: Callable[[Any], Any], retries: int = RETRIES) -> tuple[Any, int]:
        """Replace the value by `change(value)`, again if somebody else was faster."""
        return run(self._front.update(change, retries))

    def delete(self, version: int | None = None) -> None:
        """Delete if the version is still this one."""
        run(self._front.delete(version))

    def watch(self) -> Stream[tuple[Any, int]]:
        """The value and its version, now and after every change."""
        return Stream(self._front.watch())


class Stream(Generic[T]):
    """What keeps coming, as an iterator, from the start of its `with` or else from the first `next`.

    Close it, or leave its `with`, to stop being told.
    """

    def __init__(self, source: AsyncIterator[T], *, says_begun: bool = False) -> None:
        self._source, self._to_begin = source, says_begun

    def _begin(self) -> None:
        if self._to_begin:
            self._to_begin = False
            run(self._source.__anext__())  # type: ignore[arg-type]

    def __iter__(self) -> Stream[T]:
        return self

    def __next__(self) -> T:
        try:
            self._begin()
            return run(self._source.__anext__())  # type: ignore[arg-type]
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        """Stop being told."""
        run(self._source.aclose())  # type: ignore[attr-defined]

    def __enter__(self) -> Stream[T]:
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Client:
    """One session with an engine. It serves many threads; close it, or leave its `with`, to release everything."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def __repr__(self) -> str:
        return f"<holdfast {self._core}>"

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the session, which releases everything that is held."""
        run(self._core.close())

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

    def inspect(self, name: str, *, kind: str = "lock") -> LockInfo:
        """Who holds a lock and who waits for it, in order."""
        core = self._core
        core.check_open()
        return core.shown(run(core.verbs.inspect(core.kind(kind), check_name(name), core.until())))

    def list(self, prefix: str = "", *, kind: str | None = None) -> list[LockInfo]:
        """Every lock in use under a prefix."""
        core = self._core
        core.check_open()
        found = run(core.verbs.list(check_prefix(prefix), core.kind(kind or ""), core.until()))
        return [core.shown(info) for info in found]

    def watch(self, prefix: str = "") -> Stream[LockEvent]:
        """What happens to locks under a prefix, as it happens."""
        return Stream(watching.watch(self._core, check_prefix(prefix)), says_begun=True)

    def break_lock(self, name: str, *, kind: str = "lock", force: bool = False) -> int:
        """Make every holder let go; how many there were. Returns when they are gone."""
        return run(breaking.break_lock(self._core, name, kind, force))

    def adopt(self, text: str) -> Grant:
        """Take over what another client handed over, with a higher token."""
        return Grant(self._core, run(handing.adopt(self._core, text)))

    def row_lock(self, connection: Any, table: str, key: Any, **options: Unpack[RowOptions]) -> dict[str, Any] | None:
        """Lock a database row until the caller's transaction ends; the row, or None if there is none."""
        return run(lock_row(connection, table, key, **options))

    def locked(self, name: str, **options: Unpack[Options]) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Run a function under a lock whose name is made from its arguments: `"invoice:{invoice_id}"`."""

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            if asyncio.iscoroutinefunction(function):
                raise InvalidRequest("function", function.__name__, "a coroutine needs a client of holdfast.aio")
            make_name = namer(name, function)

            @functools.wraps(function)
            def call(*args: P.args, **kwargs: P.kwargs) -> R:
                with self.lock(make_name(*args, **kwargs), **options):
                    return function(*args, **kwargs)

            return call

        return decorate

    def _lock(self, spec: Spec) -> Lock:
        return Lock(self._core, settings.check_supported(self.guarantees, str(self._core), spec))


def connect(
    url: object = None,
    *,
    ttl: float = settings.DEFAULT_TTL,
    namespace: str = settings.DEFAULT_NAMESPACE,
    app: str | None = None,
    require: Iterable[str] = (),
) -> Client:
    """Connect to an engine: `url`, else `$HOLDFAST_URL`, else the embedded SQLite file of this user.

    In place of a URL, an existing client of another library (a psycopg connection or pool, …) lends its settings.

    `ttl` is how long what this client holds outlives it. `app` is what people see of it.
    `require` names guarantees that the engine has to give, or WeakerGuarantee is raised.
    """
    given = settings.make_settings(url, ttl, namespace, app, require)
    engine = given.engine()
    return Client(given.core(engine, engine.blocking))
