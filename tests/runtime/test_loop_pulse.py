"""Whether a loop turns, after an exception of a signal handler has come in the middle of its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from holdfast.runtime.asyncio import LoopPulse
from tests.faults.watched_loop import WatchedLoop


@pytest.fixture
def loop() -> Iterator[WatchedLoop]:
    made = WatchedLoop()
    yield made
    made.loop.close()


async def some_turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_a_loop_whose_answer_was_interrupted_is_asked_again(loop: WatchedLoop) -> None:
    pulse = LoopPulse(loop.loop)
    pulse.stalled()
    assert loop.struck(some_turns, at=0), "nothing was interrupted"

    assert pulse.stalled() > 0
    loop.run(some_turns)
    assert pulse.stalled() == 0


def test_a_loop_that_does_not_turn_is_stalled_since_the_first_question(loop: WatchedLoop) -> None:
    pulse = LoopPulse(loop.loop)
    pulse.stalled()
    first = pulse.stalled()
    assert 0 < first < pulse.stalled()
    loop.run(some_turns)
    assert pulse.stalled() == 0
