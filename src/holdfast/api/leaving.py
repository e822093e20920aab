"""The end of a `with`, also of one whose exit never ran."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Protocol, TypeAlias, overload

from holdfast.locks.unsettled import Scope, Unsettled

Exit: TypeAlias = Callable[[type[BaseException] | None, BaseException | None, TracebackType | None], None]


class Enterable(Protocol):
    """What a `with` can be about."""

    def _record(self) -> Unsettled:
        """Where the scopes of its client are kept."""

    def _leave(self, scope: Scope, error: BaseException | None) -> None:
        """Give back what this scope has entered; what was entered last, if that is not known."""


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
        scope.exit = weakref.ref(found)
        _looked.scope, _looked.of = scope, entered
        return found


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
