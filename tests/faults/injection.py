"""Raise an exception at a chosen moment of a call: at a function's entry, or after a call of C code.

These are the moments at which the interpreter runs signal handlers, so an interrupt can come at
each of them. A run without a fault counts them; then each of them gets its turn.
"""

from __future__ import annotations

import gc
import inspect
import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import holdfast

NEVER_RAN = "ignore:coroutine .* was never awaited:RuntimeWarning"
"""A filter for tests: a call that is interrupted before its first bytecode is a coroutine that never ran."""
PRODUCT = os.path.dirname(holdfast.__file__) + os.sep
AFTER_C = ("c_return", "c_exception")
FIRST_INSTRUCTION = 8
"""A generator's frame beyond this has been suspended, and goes on."""


class Injected(Exception):
    """What a signal handler of the program raises, such as a soft time limit."""


class Moments:
    """Counts the moments of Holdfast and of what it calls, and raises `error` at the chosen one.

    `error` is called with the place, which is a part of the message. If it makes no error, the call goes on.
    """

    def __init__(self, chosen: int | None, error: Callable[[str], BaseException | None]) -> None:
        self.chosen, self.error = chosen, error
        self.seen = 0
        self._hook = self._event
        self.where = ""
        """Where it was raised."""

    def run(self, work: Callable[[], Any]) -> Any:
        """Call `work` with the fault armed."""
        # The garbage collector calls functions of other tools, which would only print what is raised in them.
        collects = gc.isenabled()
        gc.disable()
        sys.setprofile(self._hook)
        try:
            return work()
        finally:
            sys.setprofile(None)
            if collects:
                gc.enable()

    def _event(self, frame: FrameType, event: str, argument: object) -> None:
        if event not in AFTER_C and (event != "call" or goes_on(frame)):
            return
        # Between the entry of a `with` and its body no signal is to be delivered. From 3.14 on a profiler sees this
        # moment all the same. (Up to 3.14.10 a signal comes through there, which no program can help: docs/support.md.)
        if event in AFTER_C and getattr(argument, "__name__", "") == "__enter__":
            return
        if not in_product(frame):
            return
        at, self.seen = self.seen, self.seen + 1
        if at == self.chosen:
            # What it raises switches the profiler off.
            code = frame.f_code
            what = f"after {getattr(argument, '__qualname__', argument)}" if event != "call" else "entry"
            self.where = f"{code.co_filename}:{frame.f_lineno} {code.co_qualname}, {what}"
            self._strike()

    def _strike(self) -> None:
        """What comes at the chosen moment."""
        error = self.error(self.where)
        try:
            if error is not None:
                raise error
        finally:
            del error  # its traceback has this frame, and all that this frame keeps alive


class HandledMoments(Moments):
    """Calls a signal handler at the chosen moment, and goes on. What the handler does has no moments of its own."""

    def __init__(self, chosen: int | None, handler: Callable[[], object]) -> None:
        super().__init__(chosen, Injected)
        self._handler = handler

    def _strike(self) -> None:
        self._handler()


def in_product(frame: FrameType | None) -> bool:
    """Whether this is Holdfast's code, or was called by it.

    What a `__del__` or the callback of a weak reference raises, Python only prints.
    """
    found = False
    while frame is not None:
        if frame.f_code.co_name == "__del__" or frame.f_code.co_filename.endswith(("weakref.py", "_weakrefset.py")):
            return False
        found = found or frame.f_code.co_filename.startswith(PRODUCT)
        frame = frame.f_back
    return found


def goes_on(frame: FrameType) -> bool:
    """Whether this is a generator that is resumed.

    There the interpreter delivers a signal inside the generator's own `try`, as after a C call,
    but a profiler's exception would skip its handlers.
    """
    generator = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
    return bool(frame.f_code.co_flags & generator) and frame.f_lasti > FIRST_INSTRUCTION


def count_moments(work: Callable[[], Any]) -> int:
    """How many moments `work` has when nothing is raised."""
    moments = Moments(None, Injected)
    moments.run(work)
    return moments.seen
