"""Signals that end a command: what it has begun, a place in line or a process, is given up before it ends."""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

from holdfast.cli import terminal

ENDING = (signal.SIGTERM, signal.SIGHUP)
"""SIGINT is Python's KeyboardInterrupt already."""
AGAIN = 0.02
"""Seconds between looks at whether a signal that was dropped can be sent again."""


class Interrupted(BaseException):
    """A signal asked this process to end. Not an Exception: nothing but the top may stop it on its way."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(signal.Signals(number).name)


class Interruptible:
    """While it lasts, a signal raises in the main thread. One that was ignored stays ignored.

    Python drops what is raised inside a callback: of a weak reference, of a destructor, of a fork. Then
    the signal is sent again a moment later.
    """

    def __init__(self) -> None:
        self.before: dict[int, Any] = {}
        self.report = sys.unraisablehook
        self.told = False

    def __enter__(self) -> None:
        self.report, sys.unraisablehook = sys.unraisablehook, self.dropped
        for number in ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self.before[number] = signal.signal(number, self.interrupt)

    def interrupt(self, number: int, _: FrameType | None) -> None:
        # A terminal that is closed says so several times: what is being cleared away is not left half-way.
        if not self.told:
            self.told = True
            raise Interrupted(number)

    def dropped(self, what: sys.UnraisableHookArgs) -> None:
        """Python reports an exception that it cannot raise."""
        error = what.exc_value
        if not isinstance(error, KeyboardInterrupt | Interrupted):
            self.report(what)
            return
        number = signal.SIGINT if isinstance(error, KeyboardInterrupt) else error.number
        _thread.start_new_thread(self._send_again, (number,))

    def _send_again(self, number: int) -> None:
        """Send a signal again when the main thread has left `dropped`: Python drops what is raised in there, too."""
        while True:
            time.sleep(AGAIN)
            frame = sys._current_frames().get(threading.main_thread().ident or 0)
            while frame is not None and frame.f_code is not Interruptible.dropped.__code__:
                frame = frame.f_back
            if frame is None:
                break
        self.told = False
        os.kill(os.getpid(), number)

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
        sys.unraisablehook = self.report


def die_of_ctrl_c() -> None:
    """End by the key itself, if it was pressed on our terminal; everything is cleared away by now.

    A shell goes on with its script after a command that only exits with 130.
    """
    if not terminal.is_ours():
        return
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
