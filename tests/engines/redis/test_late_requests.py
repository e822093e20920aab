"""A request that was sent again because its connection broke, and whose first sending arrives after all."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
import redis as redis_py

import holdfast
from holdfast.engines.redis.ledger import Ledger
from holdfast.errors import EngineFailure
from holdfast.locks import acquire
from holdfast.verify.servers.redis import RedisServer
from tests.conformance.apis import Api, Front
from tests.conformance.stage import PATIENCE, Stage
from tests.engines.redis.conftest import SUBJECT
from tests.faults.children import eventually


class Detour:
    """A proxy that keeps one request back and resets the connection on which it came."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self.mark: bytes | None = None
        """What the request has in it."""
        self._kept: tuple[socket.socket, bytes] | None = None
        self._answered = threading.Event()
        self._ends: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._server_port))
                self._ends += (near, far)
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=ends, daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if self._kept is not None and source is self._kept[0]:
                    self._answered.set()
                    return
                if self.mark is not None and self.mark in data:
                    self.mark, self._kept = None, (sink, data)
                    source.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    source.shutdown(socket.SHUT_RDWR)
                    source.close()
                    return
                sink.sendall(data)

    def deliver(self) -> None:
        """Send on what was kept back, and wait until it is answered."""
        assert self._kept is not None, "no such request came"
        sink, data = self._kept
        sink.sendall(data)
        assert self._answered.wait(PATIENCE), "the late request was not carried out"

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in self._ends:
            end.close()


@pytest.fixture
def detour(server: RedisServer) -> Iterator[Detour]:
    detour = Detour(server.port)
    yield detour
    detour.close()


@pytest.fixture
def operator(server: RedisServer) -> Iterator[redis_py.Redis]:
    with redis_py.Redis(port=server.port) as client:
        yield client


@pytest.fixture
async def far_stage(api: Api, detour: Detour) -> AsyncIterator[Stage]:
    stage = Stage(SUBJECT, api, f"redis://127.0.0.1:{detour.port}/0")
    yield stage
    await stage.end()


@pytest.fixture
async def locks(far_stage: Stage) -> Front:
    client = await far_stage.client()
    await (await client.lock("first").acquire()).release()
    return client


def holders(operator: redis_py.Redis) -> int:
    return int(operator.exists("holdfast:1:{holdfast}:lock:lock:k"))


async def test_what_was_given_back_does_not_come_back(locks: Front, detour: Detour, operator: redis_py.Redis) -> None:
    detour.mark = b"lock:k"
    held = await locks.lock("k").acquire(wait=PATIENCE)
    await held.release()
    detour.deliver()

    assert holders(operator) == 0


async def test_what_was_refused_does_not_come_later(
    locks: Front, far_stage: Stage, detour: Detour, operator: redis_py.Redis
) -> None:
    rival = await far_stage.client()
    held = await rival.lock("k").acquire()
    detour.mark = b"lock:k"
    assert await locks.lock("k").try_acquire() is None
    await held.release()
    detour.deliver()

    assert holders(operator) == 0


def test_one_whose_place_is_not_known_here_yet_looks_too_when_an_answer_was_lost(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody looks by itself.
    monkeypatch.setattr(acquire, "FIRST_POLL", 3600.0)
    answered, go_on, waits = threading.Event(), threading.Event(), Ledger.waits

    def late(ledger: Ledger, claim_id: str, lock: str) -> None:
        answered.set()
        assert go_on.wait(PATIENCE)
        waits(ledger, claim_id, lock)

    with holdfast.connect(url, ttl=600.0) as locks, ThreadPoolExecutor(1) as threads:
        engine: Any = locks._core.engine
        grant = locks.lock("k").acquire()
        monkeypatch.setattr(Ledger, "waits", late)
        waiting = threads.submit(lambda: locks.lock("k").acquire(wait=PATIENCE))
        assert answered.wait(PATIENCE)
        # As if the answer had been lost that says to whom the lock went.
        monkeypatch.setattr(engine, "hand_on", lambda news: engine.missed())
        grant.release()
        go_on.set()

        assert waiting.result().token > grant.token


def test_whoever_a_release_has_made_the_holder_hears_of_it_though_the_rest_fails(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with holdfast.connect(url) as locks:
        verbs: Any = locks._core.verbs
        order: list[str] = []
        tell = verbs.engine.hand_on

        def told(news: bytes) -> None:
            order.append("told")
            tell(news)

        async def left(*_: object) -> None:
            order.append("left")
            raise EngineFailure(url, "it is gone", "unknown")

        grant = locks.lock("k").acquire()
        waiter = threading.Thread(target=lambda: locks.lock("k").acquire().release())
        waiter.start()
        eventually(lambda: len(locks.inspect("k").waiters) == 1, "it waits")
        verbs._ledger.twice.add(grant._hold.claim.id)
        monkeypatch.setattr(verbs.engine, "hand_on", told)
        monkeypatch.setattr(verbs, "leave", left)
        with pytest.raises(holdfast.EngineUnavailable):
            grant.release()
        waiter.join(PATIENCE)

        assert order == ["told", "left"]


def test_a_refusal_that_cannot_be_made_sure_of_is_not_told_as_not_done(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first sending may arrive after all; nothing could be sent that keeps it from that."""
    with holdfast.connect(url) as rival, holdfast.connect(url) as locks, rival.lock("k"):
        verbs: Any = locks._core.verbs
        locks.lock("warm").acquire().release()
        call, leave = verbs.io.call, verbs.leave

        async def sent_twice(request: Any, until: float) -> Any:
            request.sent_twice = True
            return await call(request, until)

        async def not_sent(*_: object) -> None:
            monkeypatch.setattr(verbs, "leave", leave)
            raise EngineFailure(url, "it is gone", "not done")

        monkeypatch.setattr(verbs.io, "call", sent_twice)
        monkeypatch.setattr(verbs, "leave", not_sent)
        try:
            with pytest.raises(holdfast.EngineUnavailable) as error:
                locks.lock("k").try_acquire()
        finally:
            monkeypatch.undo()
        assert error.value.outcome == "unknown"
        # Withdrawn all the same, with a note for the one that may arrive.
        eventually(lambda: not verbs._ledger.twice, "the claim was not withdrawn")
