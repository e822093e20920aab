"""The end of a `with` or an `async with`, also of one whose exit never ran."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Coroutine
from functools import partial
from types import TracebackType
from typing import Any, Protocol, TypeAlias, overload

from holdfast.locks.unsettled import Scope, Unsettled

Exit: TypeAlias = Callable[[type[BaseException] | None, BaseException | None, TracebackType | None], None]
AwaitedExit: TypeAlias = Callable[
    [type[BaseException] | None, BaseException | None, TracebackType | None], Coroutine[Any, Any, None]
]


class Enterable(Protocol):
    """What a `with` can be about."""

    def _record(self) -> Unsettled:
        """Where the scopes of its client are kept."""

    def _leave(self, scope: Scope, error: BaseException | None) -> Any:
        """Give back what this scope has entered; what was entered last, if that is not known.

        In the asyncio API the result has to be awaited.
        """


class _Looked(threading.local):
    """The scope whose exit this thread has looked up, for the `__enter__` that follows."""

    scope: Scope | None = None
    of: object = None


_looked = _Looked()


class WithExit:
    """`__exit__` of what a `with` enters: each `with` gets an exit of its own.

    Python code cannot make its first bytecode safe, so an interrupt can end a `with` before any
    `__exit__` has run. But the interpreter looks `__exit__` up before it enters, and lets go of
    what it found when the `with` is over. When that object is gone and its scope is still in the
    client's record, the keeper gives back what the scope has entered.
    """

    @overload
    def __get__(self, entered: None, kind: type) -> Callable[..., None]: ...

    @overload
    def __get__(self, entered: Any, kind: type) -> Exit: ...

    def __get__(self, entered: Any, kind: type) -> Callable[..., None]:
        if entered is None:
            return _leave_last  # asked of the class, as `contextlib.ExitStack` does
        scope = Scope()
        # A partial: its frame would keep a bound method alive for as long as a traceback is kept.
        found = partial(_leave_scope, entered, scope)
        _note_looked_up(entered, scope, found)
        return found


class WithAwaitedExit:
    """`__aexit__` of what an `async with` enters, likewise."""

    @overload
    def __get__(self, entered: None, kind: type) -> Callable[..., Coroutine[Any, Any, None]]: ...

    @overload
    def __get__(self, entered: Any, kind: type) -> AwaitedExit: ...

    def __get__(self, entered: Any, kind: type) -> Callable[..., Coroutine[Any, Any, None]]:
        if entered is None:
            return _leave_last_awaited
        scope = Scope()
        found = partial(_begin_to_leave, entered, scope)
        _note_looked_up(entered, scope, found)
        return found


def _note_looked_up(entered: Enterable, scope: Scope, found: Callable[..., Any]) -> None:
    scope.exit = weakref.ref(found)
    _looked.scope, _looked.of = scope, entered


def entering(entered: Enterable) -> Scope:
    """The scope of the `with` that is calling `__enter__`, recorded; one of its own for a call by hand."""
    scope, of = _looked.scope, _looked.of
    _looked.scope = _looked.of = None
    if scope is None or of is not entered or scope.is_over:
        return Scope()
    entered._record().scopes[scope] = None
    return scope


def _leave_scope(
    entered: Enterable,
    scope: Scope,
    _: type[BaseException] | None,
    error: BaseException | None,
    __: TracebackType | None,
) -> None:
    entered._leave(scope, error)
    entered._record().scopes.pop(scope, None)


def _leave_last(entered: Enterable, _: object, error: BaseException | None, __: TracebackType | None) -> None:
    entered._leave(Scope(), error)


def _begin_to_leave(
    entered: Enterable,
    scope: Scope,
    _: type[BaseException] | None,
    error: BaseException | None,
    __: TracebackType | None,
) -> Coroutine[Any, Any, None]:
    """The interpreter lets go of the exit when it has called this. The `async with` is over when the result is."""
    work = _leave_scope_awaited(entered, scope, error)
    try:
        scope.exit = weakref.ref(work)
        return work
    finally:
        # A traceback may keep this frame.
        del work


async def _leave_scope_awaited(entered: Enterable, scope: Scope, error: BaseException | None) -> None:
    await entered._leave(scope, error)
    entered._record().scopes.pop(scope, None)


async def _leave_last_awaited(
    entered: Enterable, _: object, error: BaseException | None, __: TracebackType | None
) -> None:
    await entered._leave(Scope(), error)
