"""The controlling terminal: whose turn it is to read from it and to be reached by Ctrl-C."""

from __future__ import annotations

import os
import signal


def foreground_of(terminal: int | None) -> int | None:
    """The process group that has the terminal now."""
    if terminal is None:
        return None
    try:
        return os.tcgetpgrp(terminal)
    except OSError:
        return None


def open_terminal() -> int | None:
    """The controlling terminal, if there is one."""
    try:
        return os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None


def is_ours() -> bool:
    """Whether this process's group has the terminal, so that its keys reach us."""
    terminal = open_terminal()
    try:
        return foreground_of(terminal) == os.getpgrp()
    finally:
        if terminal is not None:
            os.close(terminal)


def give(terminal: int | None, group: int) -> None:
    """Let a process group have the terminal. A terminal that is gone needs no owner."""
    if terminal is None:
        return
    # Whoever is in the background is stopped for this by SIGTTOU, unless it blocks that.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    try:
        os.tcsetpgrp(terminal, group)
    except OSError:
        return
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
