"""The decorator `locked` holds the lock while the body runs, or refuses the function."""

from __future__ import annotations

import asyncio
import io
import itertools
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import aclosing, asynccontextmanager, closing, contextmanager
from typing import Any

import pytest

import holdfast
from holdfast import InvalidRequest, aio


def generator() -> Generator[int, None, None]:
    yield 1


async def async_generator() -> AsyncGenerator[int, None]:
    yield 1


async def coroutine() -> int:
    raise AssertionError("the body ran")


class Waiting:
    def __await__(self) -> Iterator[None]:
        raise AssertionError("the body ran")


class Reading:
    def __aiter__(self) -> Reading:
        return self

    async def __anext__(self) -> int:
        raise AssertionError("the body ran")


def body(*_: object) -> int:
    raise AssertionError("the body ran")


LATER = {
    "generator": generator,
    "asynchronous generator": async_generator,
    "coroutine": coroutine,
    "context manager": contextmanager(generator),
    "asynchronous context manager": asynccontextmanager(async_generator),
    "future of a pool": Future[int],
    "awaitable": Waiting,
    "asynchronous iterator": Reading,
    "map": lambda: map(body, [1]),
    "filter": lambda: filter(body, [1]),
    "chain": lambda: itertools.chain(map(body, [1])),
    "closing": lambda: closing(generator()),
    "aclosing": lambda: aclosing(async_generator()),
}
IN_A_LOOP = LATER | {
    "task": lambda: asyncio.create_task(coroutine()),
    "future": lambda: asyncio.get_running_loop().create_future(),
}
"""What runs a body, or tells of one that runs, after the function that gives it has returned."""
NOW = {
    "list": lambda: list(map(str, [1])),
    "dict": lambda: {"a": 1},
    "range": lambda: range(3),
    "text": lambda: "text",
    "nothing": lambda: None,
    "file": lambda: io.StringIO("text"),
    "closing a file": lambda: closing(io.StringIO("text")),
}


@pytest.mark.parametrize("function", [generator, async_generator])
async def test_a_generator_is_refused_when_it_is_decorated(function: Any) -> None:
    with holdfast.connect("memory://locked") as locks:
        with pytest.raises(InvalidRequest, match="generator runs after the lock is released"):
            locks.locked("k")(function)
        with pytest.raises(InvalidRequest, match="generator runs after the lock is released"):
            locks.once("k")(function)
    async with aio.connect("memory://locked") as tasks:
        with pytest.raises(InvalidRequest, match="generator runs after the lock is released"):
            tasks.locked("k")(function)
        with pytest.raises(InvalidRequest, match="generator runs after the lock is released"):
            tasks.once("k")(function)


@pytest.mark.parametrize("made", LATER.values(), ids=LATER)
def test_a_function_that_returns_a_body_to_run_later_is_refused_when_it_returns(made: Callable[[], Any]) -> None:
    with holdfast.connect("memory://later") as locks:

        @locks.locked("k")
        def function() -> Any:
            return made()

        with pytest.raises(InvalidRequest, match="would run after the lock is released"):
            function()
        assert locks.list() == []


@pytest.mark.parametrize("made", IN_A_LOOP.values(), ids=IN_A_LOOP)
async def test_a_coroutine_function_that_returns_a_body_to_run_later_is_refused(made: Callable[[], Any]) -> None:
    async with aio.connect("memory://later-aio") as locks:

        @locks.locked("k")
        async def function() -> Any:
            return made()

        with pytest.raises(InvalidRequest, match="would run after the lock is released"):
            _ = await function()
        assert await locks.list() == []


@pytest.mark.parametrize("made", [IN_A_LOOP["task"], IN_A_LOOP["future"]], ids=["task", "future"])
async def test_in_a_loop_a_plain_function_is_refused_too_and_what_it_started_never_runs(made: Any) -> None:
    started = []
    with holdfast.connect("memory://later-in-a-loop") as locks:

        @locks.locked("k")
        def function() -> Any:
            started.append(made())
            return started[0]

        with pytest.raises(InvalidRequest, match="would run after the lock is released"):
            function()
    await asyncio.wait(started)
    assert started[0].cancelled()


@pytest.mark.parametrize("made", NOW.values(), ids=NOW)
def test_a_result_that_is_there_is_returned_as_it_is(made: Callable[[], Any]) -> None:
    with holdfast.connect("memory://now") as locks:
        result = made()
        assert locks.locked("k")(lambda: result)() is result


@pytest.mark.parametrize("outer", [classmethod, staticmethod])
def test_a_method_of_a_class_is_decorated_under_its_decorator(outer: Callable[[Any], Any]) -> None:
    def held(*args: Any) -> int:
        return len(locks.inspect("k").holders)

    with holdfast.connect("memory://methods") as locks:
        with pytest.raises(InvalidRequest, match=f"put @{outer.__name__} above this decorator"):
            locks.locked("k")(outer(held))

        made = type("Made", (), {"held": outer(locks.locked("k")(held))})
        assert made.held() == 1  # type: ignore[attr-defined]


def test_what_is_no_function_is_refused() -> None:
    with holdfast.connect("memory://no-function") as locks, pytest.raises(InvalidRequest, match="decorates a function"):
        locks.locked("k")(property(generator))  # type: ignore[arg-type]


class Awaited:
    async def __call__(self, *_: object) -> None:
        raise AssertionError("it was awaited")


async def awaited(*_: object) -> None:
    raise AssertionError("it was awaited")


@pytest.mark.parametrize("callback", [awaited, Awaited(), Awaited().__call__])
def test_a_blocking_client_refuses_a_callback_that_it_cannot_await(callback: Any) -> None:
    with holdfast.connect("memory://callbacks") as locks:
        for build in (
            lambda: locks.lock("k", on_lost=callback),
            lambda: locks.rwlock("k", on_wait=callback),
            lambda: locks.semaphore("k", 2, on_lost=callback),
            lambda: locks.lock_all("k", "l", on_lost=callback),
            lambda: locks.election("k", on_lost=callback),
            lambda: locks.partition("k", on_change=callback),
        ):
            with pytest.raises(InvalidRequest, match="a blocking client cannot await it"):
                build()
