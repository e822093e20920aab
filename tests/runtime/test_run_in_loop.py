"""What a keeper asks of an event loop in another thread ends in an outcome, whatever is raised there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any

import pytest

from holdfast.errors import EngineFailure
from holdfast.runtime import clock
from holdfast.runtime.asyncio import run_in_loop

ADDRESS = "engine://somewhere"


class Raised(Exception):
    """What a signal handler raises in the loop's thread."""


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop in a thread of its own, which goes on after an interrupt, as some programs do."""
    loop, stopping = asyncio.new_event_loop(), threading.Event()

    def turn() -> None:
        while not stopping.is_set():
            with suppress(KeyboardInterrupt):
                loop.run_forever()

    def stop() -> None:
        stopping.set()
        loop.stop()

    thread = threading.Thread(target=turn)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(stop)
    thread.join()
    loop.close()


async def raises(error: BaseException) -> str:
    raise error


async def never() -> str:
    await asyncio.Event().wait()
    return "never"


async def cancelled() -> str:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)
    return "never"


ENDS: dict[str, tuple[Callable[[], Coroutine[Any, Any, str]], float]] = {
    "an exception": (lambda: raises(Raised("here")), 5.0),
    "an interrupt": (lambda: raises(KeyboardInterrupt()), 5.0),
    "a runtime error": (lambda: raises(RuntimeError("here")), 5.0),
    "a cancellation": (cancelled, 5.0),
    "its time": (never, 0.05),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_request_that_is_ended_in_the_loop_has_an_unknown_outcome(loop: asyncio.AbstractEventLoop, end: str) -> None:
    make, limit = ENDS[end]

    with pytest.raises(EngineFailure) as failure:
        run_in_loop(loop, make(), ADDRESS, clock.now() + limit)

    assert (failure.value.engine, failure.value.outcome) == (ADDRESS, "unknown")


def test_an_answer_and_a_failure_of_the_engine_come_out_as_they_are(loop: asyncio.AbstractEventLoop) -> None:
    async def answers() -> str:
        return "done"

    refused = EngineFailure(ADDRESS, "it is full", "not done")

    assert run_in_loop(loop, answers(), ADDRESS, clock.now() + 5.0) == "done"
    with pytest.raises(EngineFailure) as failure:
        run_in_loop(loop, raises(refused), ADDRESS, clock.now() + 5.0)
    assert failure.value is refused


def test_a_closed_loop_does_nothing() -> None:
    loop = asyncio.new_event_loop()
    loop.close()

    with pytest.raises(EngineFailure) as failure:
        run_in_loop(loop, never(), ADDRESS, clock.now() + 5.0)

    assert failure.value.outcome == "not done"
