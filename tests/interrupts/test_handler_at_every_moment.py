"""A signal handler may use the client at any moment of a call of its own thread.

It acquires and releases, and raises nothing. It never waits for its own thread: where the engine cannot serve it in
the middle of a step, its request is refused at once, with nothing done. Other threads use the client meanwhile. The
call that it came upon ends as if there had been no signal. `make test` takes a few moments of some operations,
`make marathon` all of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

import holdfast
from tests.conformance.engines import ENGINES, Subject
from tests.conformance.turns import THOROUGH
from tests.faults.injection import HandledMoments, count_moments
from tests.interrupts.operations import OPERATIONS, Operation, Work, World
from tests.interrupts.test_every_moment import SPARE, chosen, left, took

TTL = 10.0
"""Longer than a call may take here: what a handler leaves behind is not cleared away by the end of the session."""
SOME = {
    "acquire and release", "try_acquire", "with a read lock", "semaphore", "lock_all", "a wait that times out",
    "a wait that is granted", "hand over and adopt", "cell update",
}  # fmt: skip
"""The operations that `make test` takes."""

pytestmark = pytest.mark.usefixtures("garbage_is_collected")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    subjects = [subject for subject in ENGINES if THOROUGH or subject.like is None]
    operations = [operation for operation in OPERATIONS if THOROUGH or operation.name in SOME]
    metafunc.parametrize("subject", subjects, ids=lambda subject: subject.name)
    metafunc.parametrize("operation", operations, ids=lambda operation: operation.name)


class Handler:
    """Takes a lock and gives it back, like a handler that flushes something shared."""

    def __init__(self, locks: holdfast.Client) -> None:
        self._locks = locks
        self.name = ""
        self.outcomes: list[str] = []

    def __call__(self) -> None:
        try:
            grant = self._locks.lock(self.name).try_acquire()
            if grant is not None:
                grant.release()
            self.outcomes.append("done")
        except holdfast.EngineUnavailable as error:
            self.outcomes.append(error.outcome)


@contextmanager
def others(locks: holdfast.Client) -> Iterator[None]:
    """Two more threads that use the client all the time."""
    stop, errors = threading.Event(), list[BaseException]()

    def take_turns(name: str) -> None:
        try:
            while not stop.is_set():
                with locks.lock(name, wait=5.0):
                    pass
        except BaseException as error:  # noqa: BLE001 - the test's own thread raises it
            errors.append(error)

    threads = [threading.Thread(target=take_turns, args=(f"other-{number}",)) for number in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(10.0)
    assert errors == []
    assert not any(thread.is_alive() for thread in threads)


def test_a_signal_handler_that_uses_the_client_never_waits_for_its_own_thread(
    subject: Subject, operation: Operation, fresh_url: Callable[[Subject], str]
) -> None:
    url = fresh_url(subject)
    with ExitStack() as stack:

        def connect() -> holdfast.Client:
            return stack.enter_context(holdfast.connect(url, ttl=TTL))

        world = World(connect(), connect(), connect)
        if not operation.can(world.locks.guarantees):
            assert operation.name not in ("with", "acquire and release"), "every engine has a plain lock"
            return
        names = ["handler"]
        handler = Handler(world.locks)

        def begin(at: str) -> tuple[Work, Work]:
            names.append(f"{operation.name.replace(' ', '-')}-{at}")
            return operation.prepare(world, names[-1])

        for warm in range(2):
            work, afterwards = begin(f"warm-{warm}")
            moments = count_moments(work)
            afterwards()
        with others(world.locks):
            for at in chosen(moments, f"{subject.name} {operation.name} handler"):
                # On a busy machine one may be late. One that is late again is no chance.
                for attempt in ("", "-again"):
                    work, afterwards = begin(f"{at}{attempt}")
                    # Half of them take the lock that their own thread is about to take, or has.
                    handler.name = "handler" if at % 2 else names[-1]
                    moment, seconds = HandledMoments(at, handler), list[float]()
                    if at % 2:
                        moment.run(took(work, seconds))
                    else:
                        # A lock that it could not give back in the middle of a step, its own thread waits for. And what
                        # its own thread has just been granted, it takes for what an ended call has left.
                        with suppress(holdfast.NotAcquired, holdfast.Deadlock, holdfast.LockLost):
                            moment.run(took(work, seconds))
                    assert set(handler.outcomes) <= {"done", "not done"}, moment.where
                    afterwards()
                    if seconds[0] < operation.limit + 2 * SPARE:
                        break
                else:
                    raise AssertionError(f"{seconds[0]:.1f} s, for the second time, handled at {moment.where}")
        assert handler.outcomes != []
        until = time.monotonic() + TTL / 2
        while still := left(world.rival, names):
            assert time.monotonic() < until, f"left behind: {still}"
            time.sleep(0.05)
        with world.locks.lock("afterwards", wait=1.0) as grant:
            assert grant.valid
