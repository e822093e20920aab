"""What can be taken: a lock, both sides of a readers' and writers' lock, several at once, awaited."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

from holdfast.api.asyncio.grant import Grant, Grants, end_body
from holdfast.api.entered import Entered
from holdfast.api.leaving import WithAwaitedExit, entering
from holdfast.api.waiting import Wait, chosen
from holdfast.locks import acquire, several
from holdfast.locks.client import Client as Core
from holdfast.locks.hold import Entry
from holdfast.locks.spec import Spec
from holdfast.locks.unsettled import Scope, Unsettled

G = TypeVar("G", Grant, Grants)


class Scoped(ABC, Generic[G]):
    """Something that `async with` takes and gives back; one object serves many tasks."""

    __aexit__ = WithAwaitedExit()

    def __init__(self, client: Core) -> None:
        self._client = client
        self._entered: Entered[G] = Entered(client)

    @abstractmethod
    async def _acquire(self, wait: Wait, scope: Scope) -> G:
        """Take it for a scope, which has it before this call's record lets go of it."""

    async def __aenter__(self) -> G:
        scope = entering(self)
        grant = await self._acquire(..., scope)
        try:
            grant._begin_body()
            if scope.exit is None:
                # Entered by hand or by an AsyncExitStack.
                self._entered.push(grant)
        except BaseException:
            await grant.release()
            raise
        return grant

    def _leave(self, scope: Scope, error: BaseException | None) -> Coroutine[Any, Any, None]:
        self._client.io.check_caller()
        grant: G = self._entered.pop() if scope.grant is None else scope.grant
        return end_body(grant, error)

    def _record(self) -> Unsettled:
        return self._client.unsettled


class Lock(Scoped[Grant]):
    """A lock to be taken: by `async with`, `acquire` or `try_acquire`, as often as needed."""

    def __init__(self, client: Core, spec: Spec) -> None:
        super().__init__(client)
        self._spec = spec

    @property
    def name(self) -> str:
        """Its name."""
        return self._spec.name

    async def acquire(self, wait: Wait = ...) -> Grant:
        """Wait in line for at most `wait` seconds (None: for ever). NotAcquired after that."""
        return await self._acquire(wait, Scope())

    async def _acquire(self, wait: Wait, scope: Scope) -> Grant:
        taken = scope.entries
        try:
            await acquire.acquire(self._client, self._spec, chosen(wait, self._spec), taken)
            scope.grant = grant = Grant(self._client, taken[0], self._spec.on_lost)
        except BaseException:
            await several.let_go(self._client, taken)
            raise
        self._client.unsettled.hand_out(taken[0])
        return grant

    async def try_acquire(self) -> Grant | None:
        """Take the lock if it is free now, else None. Never waits."""
        taken: list[Entry] = []
        try:
            await acquire.try_acquire(self._client, self._spec, taken)
            if not taken:
                return None
            grant = Grant(self._client, taken[0], self._spec.on_lost)
        except BaseException:
            await several.let_go(self._client, taken)
            raise
        self._client.unsettled.hand_out(taken[0])
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
        super().__init__(client)
        self._specs = specs

    async def acquire(self, wait: Wait = ...) -> Grants:
        """Take all of them within `wait` seconds, or none."""
        return await self._acquire(wait, Scope())

    async def _acquire(self, wait: Wait, scope: Scope) -> Grants:
        taken = scope.entries
        try:
            await several.acquire_all(self._client, self._specs, chosen(wait, self._specs[0]), taken)
            scope.grant = grants = Grants(self._client, taken, self._specs[0].on_lost)
            return several.hand_out(self._client, taken, grants)
        except BaseException:
            await several.let_go(self._client, taken)
            raise

    async def try_acquire(self) -> Grants | None:
        """Take all of them if they are free now, else None."""
        taken: list[Entry] = []
        try:
            await several.try_acquire_all(self._client, self._specs, taken)
            if not taken:
                return None
            return several.hand_out(self._client, taken, Grants(self._client, taken, self._specs[0].on_lost))
        except BaseException:
            await several.let_go(self._client, taken)
            raise
