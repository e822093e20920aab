"""RESP, asyncio: interrupts in the timers of a connection leave no request waiting for ever."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator

import pytest

from holdfast.engines.resp.tasks import TICK, Stream
from holdfast.engines.resp.wire import Address, Lost, pack
from holdfast.runtime import clock
from holdfast.runtime.asyncio import connect
from tests.faults.injection import Injected
from tests.faults.watched_loop import WatchedLoop

SHORT = 0.3


@pytest.fixture
def loop() -> Iterator[WatchedLoop]:
    made = WatchedLoop()
    yield made
    made.loop.close()


@pytest.fixture
def address() -> Iterator[Address]:
    """Where nothing answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield Address(*listening.getsockname())


def interrupted(function: Callable[[], object], times: int) -> Callable[[], object]:
    """The function, with an interrupt at its beginning when it is called the first so many times."""
    left = [Injected() for _ in range(times)]

    def call() -> object:
        if left:
            raise left.pop()
        return function()

    return call


async def is_told(stream: Stream) -> bool:
    """Whether a request without an answer is told so in time."""
    asked = stream.send(pack(("PING",)), clock.now() + SHORT)
    await asyncio.wait({asked}, timeout=10 * SHORT)
    return asked.done() and isinstance(asked.exception(), Lost)


@pytest.mark.parametrize(("step", "times"), [("_tick", 1), ("_set_timers", 1)])
def test_a_request_is_told_that_its_time_is_over_after_an_interrupt(
    loop: WatchedLoop, address: Address, step: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def asks() -> bool:
        stream = Stream(address, loop.loop)
        await connect(loop.loop, lambda: stream, address, None)
        first = stream.send(pack(("PING",)), clock.now() + 10 * SHORT)
        monkeypatch.setattr(stream, step, interrupted(getattr(stream, step), times))
        await asyncio.sleep(4 * TICK)
        told = await is_told(stream)
        stream.end("the test is over")
        await asyncio.wait({first})
        assert isinstance(first.exception(), Lost)
        return told

    assert loop.run(asks)


def test_the_next_request_is_told_after_interrupts_in_all_timers(
    loop: WatchedLoop, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def asks() -> bool:
        stream = Stream(address, loop.loop)
        monkeypatch.setattr(stream, "_tick", interrupted(stream._tick, 2))
        await connect(loop.loop, lambda: stream, address, None)
        first = stream.send(pack(("PING",)), clock.now() + SHORT)
        await asyncio.sleep(4 * TICK)
        assert await is_told(stream)
        return first.done() and isinstance(first.exception(), Lost)

    assert loop.run(asks)
