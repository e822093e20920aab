"""asyncio: an answer whose news to the loop was interrupted does not keep later answers from their tasks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from holdfast.engines.zookeeper.answer import Answer
from holdfast.engines.zookeeper.asking import ZooKeeperAsyncioPort
from holdfast.runtime import clock
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
