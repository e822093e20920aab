"""After a wait in a loop was interrupted at any moment, the next wait has an outcome, and a new socket is watched."""

from __future__ import annotations

import os
import select
import selectors
import socket
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from holdfast.engines.postgres.sockets import LoopSockets
from holdfast.engines.postgres.wire import READ, WRITE, WireLost
from holdfast.runtime import clock
from tests.faults.watched_loop import WatchedLoop

IN_TIME = 2.0

pytestmark = pytest.mark.usefixtures("garbage_is_collected")


@pytest.fixture
def loop() -> Iterator[WatchedLoop]:
    made = WatchedLoop()
    yield made
    made.loop.close()


def ready(loop: WatchedLoop, sockets: LoopSockets, descriptor: int, event: int = READ) -> bool | None:
    """Whether the next wait ends with the event; None if it gives up the connection."""
    try:
        return bool(loop.run(lambda: sockets.ready(descriptor, event, clock.now() + IN_TIME)))
    except WireLost:
        return None


def for_each_interrupt(loop: WatchedLoop, look: Callable[[LoopSockets, socket.socket], None]) -> int:
    """Interrupt a wait at each moment, and look at what it has left. How many moments there were."""
    at, going_on = 0, True
    while going_on:
        sockets = LoopSockets(loop.loop)
        one, other = socket.socketpair()
        with one, other:
            other.send(b"!")
            going_on = loop.struck(partial(sockets.ready, one.fileno(), READ, clock.now() + IN_TIME), at)
            look(sockets, one)
            if one.fileno() >= 0:
                sockets.closing(one.fileno())
        at += 1
    return at


def test_after_an_interrupted_wait_the_next_one_ends_with_the_event_or_the_connection_is_given_up(
    loop: WatchedLoop,
) -> None:
    seen = []

    def look(sockets: LoopSockets, one: socket.socket) -> None:
        outcome = ready(loop, sockets, one.fileno())
        assert outcome is not False, "it waited in vain"
        seen.append(outcome)

    assert for_each_interrupt(loop, look) > 10
    assert None in seen, "no interrupt came between the system's list and the loop's"
    assert True in seen


def test_after_an_interrupted_wait_a_new_connection_with_the_same_descriptor_is_watched(loop: WatchedLoop) -> None:
    before = loop.watched

    def look(sockets: LoopSockets, one: socket.socket) -> None:
        number = one.fileno()
        sockets.closing(number)
        one.close()
        assert loop.watched == before
        fresh, other = socket.socketpair()
        with fresh, other:
            assert number in (fresh.fileno(), other.fileno())
            other.send(b"!")
            assert ready(loop, sockets, fresh.fileno())
            assert ready(loop, sockets, other.fileno(), WRITE)

    for_each_interrupt(loop, look)


@pytest.mark.parametrize("event", [READ, WRITE])
def test_a_connection_that_the_system_watches_behind_the_loops_back_is_given_up(loop: WatchedLoop, event: int) -> None:
    sockets = LoopSockets(loop.loop)
    one, other = socket.socketpair()
    assert isinstance(loop.selector, selectors.EpollSelector)
    with one, other, select.epoll.fromfd(os.dup(loop.selector.fileno())) as epoll:
        epoll.register(one, select.EPOLLIN)
        with pytest.raises(WireLost, match="the event loop cannot watch the connection"):
            loop.run(lambda: sockets.ready(one.fileno(), event, clock.now() + IN_TIME))
