"""Whoever waits for a reply goes on where it is read, and is nobody's problem but its own."""

from __future__ import annotations

from tests.faults.interrupted import one_is_interrupted
from tests.servers.lock_server import LockServer


def test_one_that_is_interrupted_keeps_nobody_from_its_reply(server: LockServer) -> None:
    # Among the last, so that no later reply brings the rest along.
    one_is_interrupted(server.url, tasks=40, which=36)
