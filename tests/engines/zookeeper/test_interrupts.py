"""An interrupt at any step of what a calling thread shares with the connection's thread."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from holdfast.core.urls import parse
from holdfast.engines.zookeeper.answer import Answer
from holdfast.engines.zookeeper.asking import ZooKeeperPort
from holdfast.engines.zookeeper.engine import ZooKeeperEngine
from holdfast.engines.zookeeper.link import Link
from holdfast.runtime import clock

PATIENCE = 10.0
MOST_STEPS = 2_000


def interrupted_at(step: int, work: Callable[[], object]) -> bool:
    """Run `work` and interrupt it where Python hears signals: as a function begins, and after a call of C.

    At the n-th such moment; whether it came so far.
    """
    left, here = step, sys._getframe()

    def profile(frame: FrameType, what: str, _: Any) -> None:
        nonlocal left
        if frame.f_code is here.f_code or what not in ("call", "c_return"):
            return
        left -= 1
        if left == 0:
            sys.setprofile(None)
            raise KeyboardInterrupt

    sys.setprofile(profile)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return left <= 0  # where nobody could hear of it


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_no_interrupt_of_a_caller_stops_the_thread_that_answers_it() -> None:
    port = ZooKeeperPort()
    for step in range(1, MOST_STEPS):
        answers = [Answer(), Answer()]
        thread = threading.Thread(target=lambda given: [answer.set() for answer in given], args=(answers,), daemon=True)
        until = clock.now() + 0.005
        came_so_far = interrupted_at(step, lambda given=answers, end=until: port.call(given, end))  # type: ignore[misc]
        thread.start()
        thread.join(PATIENCE)
        assert not thread.is_alive(), f"step {step}"
        if not came_so_far:
            return
    pytest.fail("it never ended")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("flag", ["_stopped", "_live", "_writer_stopped"])
@pytest.mark.parametrize("act", ["set", "clear"])
def test_no_interrupt_of_a_caller_stops_the_thread_that_shares_a_flag_of_kazoo(flag: str, act: str) -> None:
    engine = ZooKeeperEngine(parse("zookeeper://127.0.0.1:1"), "holdfast")
    verbs = engine.blocking()
    for step in range(1, MOST_STEPS):
        link = Link(engine.place, 1.0, beats=False)
        shared = getattr(link.kazoo, flag)
        came_so_far = interrupted_at(step, getattr(shared, act))
        thread = threading.Thread(target=lambda one: (one.clear(), one.set()), args=(shared,), daemon=True)
        thread.start()
        thread.join(PATIENCE)
        assert not thread.is_alive(), f"step {step}"
        if not came_so_far:
            assert type(verbs.bell) is type(shared)
            return
    pytest.fail("it never ended")


def test_no_interrupt_of_a_caller_keeps_the_next_one_from_waking_the_connections_thread() -> None:
    engine = ZooKeeperEngine(parse("zookeeper://127.0.0.1:1"), "holdfast")
    for step in range(1, MOST_STEPS):
        connection = Link(engine.place, 1.0, beats=False).kazoo._connection
        reader, connection._write_sock = connection.handler.create_socket_pair()
        came_so_far = interrupted_at(step, connection.wake)
        connection.wake()
        assert reader.recv(10), f"step {step}"
        for end in (reader, connection._write_sock):
            end.close()
        if not came_so_far:
            return
    pytest.fail("it never ended")
