"""The decorator `locked` holds the lock while the body runs, or refuses the function."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

import holdfast
from holdfast import InvalidRequest, aio


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


async def coroutine() -> int:
    raise AssertionError("the body ran")


LATER = [generator, async_generator, coroutine, contextmanager(generator), asynccontextmanager(async_generator)]


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


@pytest.mark.parametrize("made", LATER)
def test_a_function_that_returns_a_body_to_run_later_is_refused_when_it_returns(made: Callable[[], Any]) -> None:
    with holdfast.connect("memory://later") as locks:

        @locks.locked("k")
        def function() -> Any:
            return made()

        with pytest.raises(InvalidRequest, match="would run after the lock is released"):
            function()
        assert locks.list() == []


@pytest.mark.parametrize("made", LATER)
async def test_a_coroutine_function_that_returns_a_body_to_run_later_is_refused(made: Callable[[], Any]) -> None:
    async with aio.connect("memory://later-aio") as locks:

        @locks.locked("k")
        async def function() -> Any:
            return made()

        with pytest.raises(InvalidRequest, match="would run after the lock is released"):
            _ = await function()


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
