"""Errors as they travel: into a copy, out of another process, to everybody who waited for the same thing."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import traceback
import weakref
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

import holdfast
from holdfast import aio, errors

MADE: list[errors.HoldfastError] = [
    errors.NotAcquired("k", 1.5, place=3, kind="latch"),
    errors.LockLost("k", 7, "its session ran out"),
    errors.NotHeld("k", 7),
    errors.StaleToken("rows", 7, 8),
    errors.Deadlock("k", []),
    errors.Conflict("k", 1, 2),
    errors.RecordedFailure("k", "OSError", "no"),
    errors.EngineUnavailable("redis://h", "it is gone", "unknown"),
    errors.Unsupported("redis", "subtree", "holdfast"),
    errors.WeakerGuarantee("redis", ["durable"], "kept in memory"),
    errors.InvalidRequest("ttl", -1, "a ttl is positive"),
]


def test_every_error_is_here() -> None:
    kinds = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)}

    # What an engine raises is an EngineUnavailable to the caller.
    assert {type(error) for error in MADE} == kinds - {errors.HoldfastError, errors.EngineFailure}


@pytest.mark.parametrize("error", MADE, ids=lambda error: type(error).__name__)
def test_a_copy_says_the_same(error: errors.HoldfastError) -> None:
    for same in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(same) is type(error)
        assert str(same) == str(error)
        assert vars(same) == vars(error)


def refused(url: str) -> None:
    with holdfast.connect(url) as locks, locks.lock("k", wait=0):
        raise AssertionError("both have it")


def test_an_error_comes_out_of_a_pool_of_processes(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    with (
        holdfast.connect(url, app="mine") as locks,
        locks.lock("k"),
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool,
    ):
        with pytest.raises(holdfast.NotAcquired) as caught:
            pool.submit(refused, url).result(60.0)

    assert [holder.app for holder in caught.value.holders] == ["mine"]


async def test_all_who_wait_for_a_session_are_told_in_words_of_their_own() -> None:
    async with await aio.connect("memory://", ttl=600.0) as locks:

        async def fails() -> None:
            raise errors.EngineUnavailable("memory", "a test", "not done") from OSError("no way")

        locks._core.start_keeper().new_session = fails  # type: ignore[method-assign, assignment]
        tasks = [asyncio.create_task(locks.lock("k").acquire()) for _ in range(3)]
        told = await asyncio.gather(*tasks, return_exceptions=True)

    assert [str(error) for error in told] == ["memory: a test (outcome: not done)"] * 3
    shown = ["".join(traceback.format_exception(error)) for error in told if isinstance(error, Exception)]
    assert [text.count("in live_session") for text in shown] == [1, 1, 1]
    assert all("no way" in text for text in shown)


async def cannot(*_: object) -> object:
    """A verb of an engine that is not there."""
    raise errors.EngineFailure("memory", "a test", "not done")


def test_an_error_is_gone_with_the_last_reference_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with holdfast.connect("memory://gone") as locks:
        released = locks.lock("k").acquire()
        released.release()
        monkeypatch.setattr(locks._core.verbs, "enter", cannot)
        gc.collect()
        gc.disable()
        try:
            for call in (released.release, locks.lock("k").acquire):
                try:
                    call()
                except errors.HoldfastError as error:
                    told = weakref.ref(error)
                assert told() is None, "it keeps the frames of its call alive, and they keep it"
        finally:
            gc.enable()


def test_a_caller_gets_the_public_error_with_its_story(monkeypatch: pytest.MonkeyPatch) -> None:
    async def cannot_because(*_: object) -> object:
        raise errors.EngineFailure("memory", "a test", "unknown") from OSError("no way")

    with holdfast.connect("memory://public") as locks:
        locks.lock("k").acquire().release()
        monkeypatch.setattr(locks._core.verbs, "enter", cannot_because)
        with pytest.raises(errors.EngineUnavailable, match="a test") as told:
            locks.lock("k").acquire()

    assert type(told.value) is errors.EngineUnavailable
    assert told.value.outcome == "unknown"
    shown = "".join(traceback.format_exception(told.value))
    assert "no way" in shown
    assert "in cannot_because" in shown
    assert shown.count("EngineUnavailable") == 1
