"""Starting CMD: in a process group of its own, and never without its guard.

Only the guard calls this. It has one thread, so that what happens between fork and exec is safe.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence

from holdfast.cli import terminal

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

OURS = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python itself ignores from its start."""


class NotStarted(Exception):
    """CMD could not be executed."""

    def __init__(self, errno: int, pid: int) -> None:
        self.errno, self.pid = errno, pid
        super().__init__(os.strerror(errno))


def die_with_parent() -> Callable[[], object]:
    """What a child calls to be killed when its parent dies. Linux only; elsewhere it does nothing."""
    if not sys.platform.startswith("linux"):
        return lambda: None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    return lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, to clear it away when it has ended too.

    Otherwise zombies of CMD's group stay as long as the system's first process leaves them: for ever,
    where that is a program which expects no children, such as this one in a container. Linux only.
    """
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def spawn(
    argv: Sequence[str],
    env: Mapping[str, str],
    defaults: Sequence[int],
    tty: int | None,
    tie: Callable[[], object],
) -> int:
    """Start CMD; its pid, which is its process group too. `defaults` are signals to handle as by default."""
    parent = os.getpid()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(argv, env, defaults, tty, tie, parent, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        failure = answer.read()
    if failure:
        os.waitpid(pid, 0)
        raise NotStarted(int(failure), pid)
    return pid


def _become(
    argv: Sequence[str],
    env: Mapping[str, str],
    defaults: Sequence[int],
    tty: int | None,
    tie: Callable[[], object],
    parent: int,
    writer: int,
) -> None:
    """In the child: become CMD, or say why not and end."""
    try:
        os.setpgid(0, 0)
        terminal.give(tty, os.getpid())
        for number in (*defaults, *OURS):
            signal.signal(number, signal.SIG_DFL)
        tie()
        # The guard may have died before we were tied to it.
        if os.getppid() == parent:
            os.execvpe(argv[0], list(argv), env)
    except OSError as error:
        os.write(writer, str(error.errno).encode())
    except ValueError:
        # Python refuses a CMD that is empty before the system can.
        os.write(writer, str(errno.ENOENT).encode())
    finally:
        os._exit(127)
