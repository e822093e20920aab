"""What a keeper sleeps on is closed once: a `close` that was interrupted is called again, and closes no other file."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.engines.alarm import Alarm
from holdfast.engines.redis.bell import Bell as RedisBell
from holdfast.engines.sqlite.bell import Bell as SqliteBell
from tests.faults.injection import Injected, Moments

pytestmark = [
    pytest.mark.usefixtures("garbage_is_collected"),
    # Of a connection that was to be closed at the moment of the interrupt.
    pytest.mark.filterwarnings(
        "ignore:unclosed:ResourceWarning", "ignore:Exception ignored:pytest.PytestUnraisableExceptionWarning"
    ),
]


class Connection:
    """As much of a connection as a bell closes."""

    def __init__(self) -> None:
        self.socket = socket.socket()
        self.close = self.socket.close


class Route:
    tls = None


def alarm(_: Path) -> Alarm:
    return Alarm()


def sqlite(folder: Path) -> Alarm:
    bell = SqliteBell(folder, lambda _: None)
    for session in ("one", "other"):
        bell.listen(session)
    return bell


def redis(_: Path) -> Alarm:
    bell = RedisBell(cast(Any, Route()), "", lambda _: None, lambda: None)
    connection: Any = Connection()
    bell._poll.register(connection.socket.fileno())
    bell._connection = connection
    return bell


@pytest.mark.parametrize("make", [alarm, sqlite, redis], ids=lambda make: make.__name__)
def test_a_close_that_was_interrupted_may_be_called_again(make: Callable[[Path], Alarm], tmp_path: Path) -> None:
    at, going_on = 0, True
    while going_on:
        bell = make(tmp_path)
        moments = Moments(at, Injected)
        try:
            moments.run(bell.close)
        except Injected:
            pass
        else:
            going_on = False
        others = [end for _ in range(4) for end in os.pipe()]
        try:
            bell.close()
        finally:
            for other in others:
                os.close(other)  # OSError if it is closed already
        at += 1
    assert at > 3
