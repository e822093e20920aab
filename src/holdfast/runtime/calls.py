"""Which blocking calls are running, and whether a call has ended.

An interrupt can end a call between any two bytecodes, also inside a clean-up. What a call takes
is therefore recorded together with the call. When the call has ended and the record is still
there, somebody else gives back what it names: the keeper, or the next call that needs it.

A call is the coroutine that `holdfast.runtime.blocking.run` drives. It runs from its first
bytecode to its end without a pause, so `cr_running` says whether it is still under way, however
it ends and whatever keeps its traceback alive.
"""

from __future__ import annotations

import threading
from collections.abc import Coroutine
from types import CoroutineType
from typing import Any, TypeAlias, cast

Call: TypeAlias = "CoroutineType[Any, Any, Any]"


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
    begun.append(cast("Call", work))


def running_call() -> Call | None:
    """The innermost call that runs in this thread; None outside of any call."""
    for call in reversed(_calls.begun):
        if call.cr_running:
            return call
    return None


def has_ended(call: object) -> bool:
    """Whether a call is over. What was taken outside of any call (None) counts as in use."""
    return isinstance(call, CoroutineType) and not call.cr_running


def runs_here(call: Call | None) -> bool:
    """Whether a call is under way in this thread: the running one, or one that a signal handler has come upon."""
    return call is not None and call.cr_running and call in _calls.begun
