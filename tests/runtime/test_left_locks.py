"""Locks that are left locked because Python has skipped the end of a `with`."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.errors import NotAcquired
from holdfast.runtime import calls
from holdfast.runtime.blocking import run
from holdfast.runtime.calls import new_lock


@pytest.fixture(autouse=True)
def every_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only some do so."""
    monkeypatch.setattr(calls, "WITH_CAN_BE_LEFT_OPEN", True)


async def leave(lock: threading.RLock, error: BaseException) -> None:
    """As if the end of a `with` were skipped."""
    lock.acquire()
    raise error


def is_free(lock: threading.RLock) -> bool:
    """Whether another thread can take it."""

    def take() -> bool:
        if lock.acquire(blocking=False):
            lock.release()
            return True
        return False

    with ThreadPoolExecutor(1) as other:
        return other.submit(take).result()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError()], ids=["interrupt", "soft time limit"])
def test_a_call_that_was_interrupted_leaves_no_lock_locked(error: BaseException) -> None:
    lock = new_lock()
    with pytest.raises(type(error)):
        run(leave(lock, error))
    assert is_free(lock)


def test_a_lock_that_an_outer_call_has_stays_locked() -> None:
    lock = new_lock()

    async def outer() -> bool:
        with lock:
            with pytest.raises(KeyboardInterrupt):
                # A signal handler.
                run(leave(new_lock(), KeyboardInterrupt()))
            return is_free(lock)

    assert not run(outer())
    assert is_free(lock)


def test_an_error_of_a_call_frees_nothing() -> None:
    lock = new_lock()
    with lock:
        with pytest.raises(NotAcquired):
            # A signal handler, that came upon code that is in no call.
            run(leave(new_lock(), NotAcquired("k", 0.1)))
        assert not is_free(lock)
