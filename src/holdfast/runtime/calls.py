"""Which blocking calls are running, and whether a call has ended.

An interrupt can end a call between any two bytecodes, also inside a clean-up. What a call takes
is therefore recorded together with the call. When the call has ended and the record is still
there, somebody else gives back what it names: the keeper, or the next call that needs it.

A call is the coroutine that `holdfast.runtime.blocking.run` drives. It runs from its first
bytecode to its end without a pause, so `cr_running` says whether it is still under way, however
it ends and whatever keeps its traceback alive.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Coroutine
from types import CoroutineType
from typing import Any, TypeAlias

from holdfast.runtime.task import LoopTask

Call: TypeAlias = "CoroutineType[Any, Any, Any]"
Borrower: TypeAlias = "Call | LoopTask"
"""What takes something and gives it back: a blocking call, or a task of a loop."""


class _Calls(threading.local):
    """The calls of one thread, the innermost last. A signal handler may begin a call inside another one."""

    def __init__(self) -> None:
        self.begun: list[Call] = []


_calls = _Calls()


def begin(work: Coroutine[Any, Any, Any]) -> None:
    """Note a call that this thread is about to run. Calls that have ended are forgotten here."""
    begun = _calls.begun
    while begun and begun[-1].cr_frame is None:
        del begun[-1]
    begun.append(work)  # type: ignore[arg-type]  # every `async def` makes one of these


def running_call() -> Call | None:
    """The innermost call that runs in this thread; None outside of any call."""
    for call in reversed(_calls.begun):
        if call.cr_running:
            return call
    return None


def has_ended(borrower: object) -> bool:
    """Whether a call or a task is over. What was taken outside of any (None) counts as in use."""
    if isinstance(borrower, CoroutineType):
        return not borrower.cr_running
    done = getattr(borrower, "done", None)
    return done is not None and bool(done())


WITH_CAN_BE_LEFT_OPEN = sys.version_info >= (3, 14)
"""Whether Python can skip the end of a `with` if a signal handler raises at its beginning (python/cpython#148874)."""
_locks: dict[int, weakref.ref[threading.RLock]] = {}
"""By address, which another lock takes over. Not a WeakSet: it runs Python code for each lock that goes."""


def new_lock() -> threading.RLock:
    """A lock that calling threads hold by `with`. Reentrant: a signal handler may run inside such a `with`."""
    lock = threading.RLock()
    if WITH_CAN_BE_LEFT_OPEN:
        _locks[id(lock)] = weakref.ref(lock)
    return lock


def free_left_locks() -> None:
    """Free what a skipped end of a `with` has left locked. An exception has just ended a call of this thread."""
    if _locks and running_call() is None:
        for found in list(_locks.values()):
            lock = found()
            while lock is not None and is_inside(lock):
                lock.release()


def is_inside(lock: threading.RLock) -> bool:
    """Whether this thread has this lock: then a signal handler asks, in the middle of a step of its own thread.

    A handler may not wait for a thread that wants the lock, nor see what the step has half done. Its request is
    refused before anything is sent.
    """
    # The only way to ask, and what threading.Condition itself asks.
    return bool(lock._is_owned())  # type: ignore[attr-defined]


UNDER_WAY = "a step of this thread is under way"
"""Why a request of a signal handler is refused."""


def runs_here(borrower: Borrower | None) -> bool:
    """Whether a call is under way in this thread: the running one, or one that a signal handler has come upon."""
    return isinstance(borrower, CoroutineType) and borrower.cr_running and borrower in _calls.begun
