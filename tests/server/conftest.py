"""One lock server for all tests that do not end it, and connections to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.servers.lock_server import LockServer, Wire

Speak = Callable[..., Wire]


@pytest.fixture(scope="session")
def shared_server() -> Iterator[LockServer]:
    with LockServer() as server:
        yield server


@pytest.fixture
def speak(shared_server: LockServer) -> Iterator[Speak]:
    """Connections to the shared server, closed at the end of the test."""
    made: list[Wire] = []

    def connect(version: int = 2) -> Wire:
        made.append(shared_server.speak(version))
        return made[-1]

    yield connect
    for wire in made:
        wire.close()


@pytest.fixture
def wire(speak: Speak) -> Wire:
    """One connection, RESP3."""
    return speak(3)
