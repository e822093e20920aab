"""Signals wait while a process is started: who is interrupted then has started one, and does not know of it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any


class Uninterrupted:
    """While it lasts, what a signal would raise in the main thread waits for its end."""

    def __init__(self) -> None:
        self._handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._came: list[int] = []
        self._lasts = True

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # nothing is raised here
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            handler = signal.getsignal(number)
            if callable(handler):
                self._handlers[number] = handler
                signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._lasts:
            self._came.append(number)
        else:
            self._handlers[number](number, frame)

    def __exit__(self, *_: object) -> None:
        self._lasts = False
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        for number in self._came:
            self._handlers[number](number, None)
