"""Where the keeper waits: rung by whoever wants it to look up, and by what the server pushes."""

from __future__ import annotations

import contextlib
import select
import socket

from holdfast.engines.holdfast.line import Line
from holdfast.engines.holdfast.port import Port
from holdfast.engines.resp import Lost
from holdfast.runtime import clock
from holdfast.runtime.blocking import run

RETRY = 0.2
"""How long a lost connection is left alone after a try to make it again failed."""
PATIENCE = 0.5
"""How long such a try may take: heartbeats wait meanwhile."""


class Bell:
    """A flag that any thread sets. Waiting for it reads the keeper's connection, and keeps it up."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._flag = False
        self._near, self._far = socket.socketpair()
        self._near.setblocking(False)
        self._far.setblocking(False)
        self._heard: Line | None = None
        """The connection that pushes came over last."""
        self._retry_at = 0.0

    # From any thread

    def set(self) -> None:
        if not self._flag:
            self._flag = True
            # A full pipe is a rung bell too.
            with contextlib.suppress(BlockingIOError, OSError):
                self._far.send(b"!")

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._near.recv(4096):
                continue
        self._flag = False

    def is_set(self) -> bool:
        return self._flag

    # In the keeper's thread

    def wait(self, timeout: float | None = None) -> bool:
        """Until the bell is rung or the time is over; hands on what is pushed meanwhile."""
        until = None if timeout is None else clock.now() + timeout
        while not self._flag:
            left = None if until is None else until - clock.now()
            if left is not None and left <= 0:
                return False
            line = self._listening()
            if line is not None:
                line.listen(self._near.fileno(), left)
            else:
                pause = RETRY if self._port.desk.session is not None else None
                self._sleep(left if pause is None else pause if left is None else min(left, pause))
        return True

    def _sleep(self, seconds: float | None) -> None:
        poll = select.poll()
        poll.register(self._near, select.POLLIN)
        poll.poll(None if seconds is None else seconds * 1000)

    def _listening(self) -> Line | None:
        """The connection that pushes come over; None if there is no session, or no way to the server just now."""
        link = self._port.link
        if link is None or link.problem is not None or link.session != self._port.desk.session:
            now = clock.now()
            if self._port.desk.session is None or now < self._retry_at:
                return None
            self._retry_at = now + RETRY
            try:
                if not run(self._port.resume(now + PATIENCE)):
                    # There is no such session any more: the next heartbeat will say so.
                    self._retry_at = now + PATIENCE
                    return None
            except Lost:
                return None
            link = self._port.link
        assert isinstance(link, Line)
        if self._heard is not link:
            if self._heard is not None:
                self._port.desk.missed()
            self._heard = link
        return link

    def close(self) -> None:
        self._near.close()
        self._far.close()
