"""How processes on one machine wake each other: a named pipe for each session, beside the database.

A writer that finds no reader, or a full pipe, drops the message: the waiter looks by itself
after a while. Pipes rather than sockets, because a path of any length works.
"""

from __future__ import annotations

import errno
import os
import select
import time
from contextlib import suppress
from pathlib import Path

from holdfast.core.table.commands import Notice
from holdfast.engines.alarm import Alarm
from holdfast.engines.engine import Deliver

BEING_MADE = 60.0
"""For how long a pipe without a reader may still be somebody's who is about to open it."""


class Bell(Alarm):
    """Where a keeper sleeps: until it is rung from this process, or another process writes to its pipe."""

    def __init__(self, folder: Path, deliver: Deliver) -> None:
        super().__init__()
        self.folder, self.deliver = folder, deliver
        self._poll = select.poll()
        self._poll.register(self.descriptor, select.POLLIN)
        self._pipes: dict[int, str] = {}
        self._ended: set[str] = set()

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until something comes, and deliver it; whether anything came."""
        if self._ended:
            self._close_ended()
        if not self._rung:
            ready = self._poll.poll(None if timeout is None else timeout * 1000)
            for descriptor, _ in ready:
                self._receive(descriptor)
            return bool(ready)
        self.empty()
        return True

    def listen(self, session: str) -> None:
        """Make the session's pipe. Opened for both directions, so that it is never at its end."""
        self.folder.mkdir(exist_ok=True)
        clear_dead(self.folder)
        # It gets its name when somebody reads there, so that a name without a reader is a dead one's.
        unnamed = self.folder / f".{session}"
        os.mkfifo(unnamed)
        descriptor = os.open(unnamed, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        unnamed.rename(self.folder / session)
        self._pipes[descriptor] = session
        self._poll.register(descriptor, select.POLLIN)

    def forget(self, session: str) -> None:
        """Remove a session's pipe. Its descriptor is closed by whoever sleeps on it, when it wakes."""
        with suppress(FileNotFoundError):
            (self.folder / session).unlink()
        self._ended.add(session)

    def close(self) -> None:
        """Close everything; nobody sleeps here any more."""
        for session in self._pipes.values():
            self.forget(session)
        self._close_ended()
        super().close()

    def _close_ended(self) -> None:
        for descriptor in [number for number, name in self._pipes.items() if name in self._ended]:
            with suppress(KeyError):  # a `close` that was interrupted is called again
                self._poll.unregister(descriptor)
            self._ended.discard(self._pipes.pop(descriptor))
            os.close(descriptor)

    def _receive(self, descriptor: int) -> None:
        with suppress(BlockingIOError):
            while text := os.read(descriptor, 65536):
                session = self._pipes.get(descriptor)
                if session is not None:
                    for line in text.decode(errors="replace").splitlines():
                        what, _, subject = line.partition(" ")
                        self.deliver(Notice(session, subject, what))


def clear_dead(folder: Path) -> None:
    """Remove the pipes of processes that died before their session was on record, or without anybody to bury it."""
    for path in folder.iterdir():
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        except OSError as error:
            if error.errno != errno.ENXIO:
                continue
            with suppress(FileNotFoundError):  # somebody else may clear up too
                if not path.name.startswith(".") or time.time() - path.lstat().st_mtime > BEING_MADE:
                    path.unlink()


def ring(folder: Path, notice: Notice) -> None:
    """Wake the session that a notice is for, whatever process it is in."""
    try:
        descriptor = os.open(folder / notice.session, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return  # nobody reads there any more, or not yet: whoever it is will look by itself
    try:
        with suppress(BlockingIOError, BrokenPipeError):
            os.write(descriptor, f"{notice.what} {notice.subject}\n".encode())
    finally:
        os.close(descriptor)
