"""A real pseudo-terminal with a `holdfast` in it, and the person in front of it."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from typing import Any

from tests.cli.stage import PATIENCE, Stage
from tests.faults.children import eventually, state


class Terminal:
    """What is typed and what is seen."""

    def __init__(self, stage: Stage, *arguments: str, **options: Any) -> None:
        self.keys, other_end = pty.openpty()
        fcntl.ioctl(other_end, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 200, 0, 0))
        ends = {"stdin": other_end, "stdout": other_end, "stderr": other_end}
        self.process: subprocess.Popen[str] = stage.start(
            *arguments, start_new_session=True, preexec_fn=_take_terminal, **{**ends, **options}
        )
        os.close(other_end)
        self.seen = ""

    def type(self, keys: str) -> None:
        """Type on the keyboard."""
        os.write(self.keys, keys.encode())

    def expect(self, text: str) -> str:
        """Wait until something is seen; all that was seen until now."""
        until = time.monotonic() + PATIENCE
        while text not in self.seen:
            assert time.monotonic() < until, f"never seen: {text!r} in {self.seen!r}"
            self._look(0.1)
        return self.seen

    def shows(self, text: str) -> bool:
        """Whether something is seen by now."""
        self._look(0.05)
        return text in self.seen

    def wait_until_it_reads(self) -> None:
        """Wait until the program sleeps, which it does to read.

        Python does not hear a signal that comes after a prompt and before the read, until something is typed.
        """
        eventually(lambda: state(self.process.pid) == "S", "it reads")

    def end(self) -> int:
        """Wait for the end; the exit code."""
        until = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < until, f"never ended: {self.seen!r}"
            self._look(0.05)
        while self._look(0.0):
            continue
        os.close(self.keys)
        return self.process.returncode

    def _look(self, wait: float) -> bool:
        if not select.select([self.keys], [], [], wait)[0]:
            return False
        try:
            got = os.read(self.keys, 65536)
        except OSError:
            # Linux says EIO when the last process on the other end has gone.
            return False
        self.seen += got.decode(errors="replace")
        return bool(got)


def _take_terminal() -> None:
    # A run of the tests in the background ignores Ctrl-C; whoever sits at a terminal does not.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
