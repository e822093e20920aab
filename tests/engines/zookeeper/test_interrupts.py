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
    """Run `work` and interrupt it at its n-th call or return, of Python or of C; whether it came so far."""
    left, here = step, sys._getframe()

    def profile(frame: FrameType, what: str, _: Any) -> None:
        nonlocal left
        if frame.f_code is here.f_code:
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
    return False


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
