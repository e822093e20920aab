"""An interrupt at any moment of a blocking request: nothing is used up, and the process goes on."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.core.urls import parse
from holdfast.engines.redis.route import OneServer, make_route
from holdfast.engines.redlock.bell import Bell
from holdfast.engines.redlock.nodes import Round
from holdfast.engines.redlock.rests import Rests
from holdfast.engines.redlock.team import NodesPort
from holdfast.engines.resp.blocking import RespPort
from holdfast.engines.resp.wire import Plain, pack
from holdfast.runtime import clock
from holdfast.runtime.blocking import run
from tests.faults.child import tell
from tests.faults.children import Child, eventually
from tests.faults.injection import NEVER_RAN, Injected, Moments, count_moments

LONG = 5.0
Ask = Callable[[bytes], Any]


def one_server(url: str) -> tuple[RespPort, Ask]:
    """A port with one connection, and what asks over it."""
    port = RespPort(url, make_route(parse(url)), most=1)
    return port, lambda word: port.call(Plain(("ECHO", word)), clock.now() + LONG)


def three_nodes(url: str) -> tuple[NodesPort, Ask]:
    """The same for rounds: all nodes are one server, which is enough for this."""
    route = make_route(parse(url))
    assert isinstance(route, OneServer)
    port = NodesPort([route] * 3, Rests(3), most=1)

    def ask(word: bytes) -> Any:
        answers = port.call(Round(Plain(("ECHO", word)), LONG), clock.now() + LONG)
        assert answers[0] == answers[1] == answers[2], answers
        return answers[0]

    return port, ask


async def call(ask: Ask, word: bytes) -> Any:
    return ask(word)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[socket.socket]:
    """All sockets that are made. If a call is interrupted while it opens one, only this list has it."""
    made: list[socket.socket] = []

    class Known(socket.socket):
        def __init__(self, *arguments: Any, **more: Any) -> None:
            made.append(self)
            super().__init__(*arguments, **more)

    monkeypatch.setattr(socket, "socket", Known)
    return made


def open_ones(sockets: list[socket.socket]) -> list[socket.socket]:
    return [each for each in sockets if each.fileno() >= 0]


@pytest.mark.usefixtures("garbage_is_collected")
@pytest.mark.filterwarnings(NEVER_RAN)
@pytest.mark.parametrize("error", [KeyboardInterrupt, Injected])
@pytest.mark.parametrize("connected", [True, False], ids=["connected", "new"])
@pytest.mark.parametrize("make", [one_server, three_nodes])
def test_no_interrupt_uses_up_a_connection(
    url: str,
    make: Callable[[str], tuple[RespPort | NodesPort, Ask]],
    connected: bool,
    error: type[BaseException],
    opened: list[socket.socket],
) -> None:
    def begin() -> tuple[RespPort | NodesPort, Ask]:
        port, ask = make(url)
        if connected:
            assert run(call(ask, b"first")) == b"first"
        return port, ask

    port, ask = begin()
    moments = count_moments(lambda: run(call(ask, b"counted")))
    port.close()
    assert moments > 20
    for at in range(moments):
        port, ask = begin()
        fault = Moments(at, error)
        # A round may have a moment more or less than the one that was counted.
        kept: BaseException | None = None
        try:
            fault.run(lambda ask=ask: run(call(ask, b"interrupted")))  # type: ignore[misc]
        except error as raised:
            kept = raised  # its traceback keeps the frames of the call alive
        started = time.monotonic()
        assert run(call(ask, b"next")) == b"next", fault.where
        assert time.monotonic() - started < LONG - 1, fault.where
        port.close()
        del kept
        # The threads that connect to nodes close what they have opened after the port was closed.
        eventually(lambda: len(open_ones(opened)) <= 1, f"sockets were left open: {fault.where}")
        for each in open_ones(opened):
            each.close()
        opened.clear()


@pytest.mark.parametrize("error", [KeyboardInterrupt, Injected])
def test_no_interrupt_keeps_the_keeper_of_a_redlock_client_from_waking(error: type[BaseException]) -> None:
    woken: list[str] = []

    def use(bell: Bell) -> None:
        bell.try_at("claim", clock.now())
        bell.set()
        bell.forget("other")

    first = Bell(woken.append)
    for at in range(count_moments(lambda: use(first))):
        bell = Bell(woken.append)
        fault = Moments(at, error)
        with pytest.raises(error):
            fault.run(lambda bell=bell: use(bell))  # type: ignore[misc]
        use(bell)
        woken.clear()
        assert bell.wait(LONG), fault.where
        assert woken == ["claim"], fault.where


def pack_under_signals(seconds: float) -> None:
    """Pack a command with many numbers in it, while a signal handler raises again and again."""

    class Stop(Exception):
        pass

    def stop(number: int, frame: object) -> None:
        raise Stop

    signal.signal(signal.SIGALRM, stop)
    command = ("SET", *range(5_000))
    interrupts, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0005)
            pack(command)
            pack(command)
        except Stop:
            interrupts += 1
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    tell(interrupts > 100)


def test_a_signal_handler_that_raises_while_a_command_is_packed_does_not_end_the_process() -> None:
    with Child("tests.engines.redis.test_interrupts:pack_under_signals", 1.0) as child:
        child.expect(True)


def test_numbers_are_packed_as_before() -> None:
    assert pack(("SET", "a", 1, b"b", -5)) == b"*5\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\nb\r\n$2\r\n-5\r\n"
