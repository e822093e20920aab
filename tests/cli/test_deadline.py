"""What `holdfast run` tells its guard of the deadline."""

from __future__ import annotations

import json
import os
import socket
import time
from typing import cast

import pytest

import holdfast
from holdfast.cli.command import Command
from holdfast.runtime import clock


class PausedGrant:
    """A grant of a process that is stopped for a moment after each look at what remains."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline

    @property
    def remaining(self) -> float:
        left = self.deadline - clock.now()
        time.sleep(0.2)
        return left


def test_a_pause_does_not_make_the_deadline_later(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = socket.socketpair()
    monkeypatch.setattr("holdfast.cli.command.fork_guard", lambda argv: (here, 0))
    with here, there:
        grant = PausedGrant(clock.now() + 60.0)
        command = Command(["true"])
        command.pass_on(cast(holdfast.Grant, grant))
        os.close(command.alarm)
        os.close(command.bell)
        told = json.loads(there.recv(65536).splitlines()[0])

    assert told["do"] == "until"
    assert told["at"] <= grant.deadline
