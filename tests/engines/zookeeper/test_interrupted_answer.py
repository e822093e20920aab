"""An interrupt in the news of an answer, or in the request for a list, does not keep later callers from theirs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.engines.zookeeper.answer import Answer
from holdfast.engines.zookeeper.asking import ZooKeeperAsyncioPort
from holdfast.engines.zookeeper.queue_view import QueueView
from holdfast.runtime import clock
from tests.faults.injection import Injected, Moments
from tests.faults.watched_loop import WatchedLoop

IN_TIME = 2.0


@pytest.fixture
def loop() -> Iterator[WatchedLoop]:
    made = WatchedLoop()
    yield made
    made.loop.close()


def test_after_an_interrupt_at_any_moment_the_next_answer_wakes_its_task(loop: WatchedLoop) -> None:
    port = ZooKeeperAsyncioPort(loop.loop)
    at, going_on = 0, True
    while going_on:
        came = Answer()
        came.set("at once")  # the task itself tells the loop
        going_on = loop.struck(partial(port.call, [came], clock.now() + IN_TIME), at)

        later, asked = Answer(), clock.now()
        loop.loop.call_later(0.01, later.set, "later")
        assert loop.run(partial(port.call, [later], asked + IN_TIME))
        assert clock.now() - asked < IN_TIME / 2, f"the task was not woken after an interrupt at moment {at}"
        at += 1
    assert at > 10


def test_after_an_interrupt_at_any_moment_the_next_caller_is_told_of_a_list() -> None:
    asked: list[Answer] = []

    def get_children(_: str) -> Answer:
        asked.append(answer := Answer())
        return answer

    link = cast(Any, SimpleNamespace(kazoo=SimpleNamespace(get_children_async=get_children)))
    view = QueueView(link, "/queue", threading.RLock())
    told: list[int] = []
    at, going_on = 0, True
    while going_on:
        moments = Moments(at, Injected)
        try:
            moments.run(lambda: view.ask(lambda: None, 0.0))
            going_on = False
        except Injected:
            pass
        view.ask(partial(told.append, at), 1.0)
        while asked:
            asked.pop(0).set([])
        assert told[-1:] == [at], f"no list after an interrupt at moment {at}"
        at += 1
    assert at > 5
