"""Where the keeper waits: rung by whoever wants it to look up, and by what the server pushes."""

from __future__ import annotations

import select

from holdfast.engines.alarm import Alarm
from holdfast.engines.holdfast.line import Line
from holdfast.engines.holdfast.port import Port
from holdfast.engines.resp.wire import Lost
from holdfast.runtime import clock
from holdfast.runtime.blocking import drive

RETRY = 0.2
"""How long a lost connection is left alone after a try to make it again failed."""
PATIENCE = 0.5
"""How long such a try may take: heartbeats wait meanwhile."""


class Bell(Alarm):
    """A signal that is also set by what the server sends. Waiting for it keeps the keeper's connection up."""

    def __init__(self, port: Port) -> None:
        super().__init__()
        self._port = port
        self._heard: Line | None = None
        """The connection that pushes came over last."""
        self._retry_at = 0.0

    def wait(self, timeout: float | None = None) -> bool:
        """Until the bell is rung or the time is over; hands on what is pushed meanwhile."""
        until = None if timeout is None else clock.now() + timeout
        while not self._rung:
            left = None if until is None else until - clock.now()
            if left is not None and left <= 0:
                return False
            line = self._listening(PATIENCE if left is None else min(PATIENCE, left))
            if line is not None:
                rung = line.listen(self.descriptor, left)
            else:
                pause = RETRY if self._port.desk.session is not None else None
                rung = self._sleep(left if pause is None else pause if left is None else min(left, pause))
            if rung:
                break
        self.empty()
        return True

    def _sleep(self, seconds: float | None) -> bool:
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        return bool(poll.poll(None if seconds is None else seconds * 1000))

    def _listening(self, patience: float) -> Line | None:
        """The connection that pushes come over; None if there is no session, or no way to the server just now."""
        link = self._port.link
        if link is None or link.problem is not None or link.session != self._port.desk.session:
            now = clock.now()
            if self._port.desk.session is None or now < self._retry_at:
                return None
            self._retry_at = now + RETRY
            try:
                if not drive(self._port.resume(now + patience)):
                    # There is no such session any more: the next heartbeat will say so.
                    self._retry_at = now + PATIENCE
                    return None
            except Lost:
                return None
            link = self._port.link
            if link is None:
                # The server has said goodbye together with its answer, or to another connection.
                return None
        assert isinstance(link, Line)
        if self._heard is not link:
            if self._heard is not None:
                self._port.desk.missed()
            self._heard = link
        return link
