"""An interrupt at any moment of a call costs a delay, never a leak.

`KeyboardInterrupt`, or an exception that a signal handler raises, is raised at each function
entry and after each call of C code, also inside `threading`, during each operation, on each
engine. A handler that checks a grant or uses a client may raise an error of Holdfast's own, which
says nothing about the call that it has come upon. After a ttl nothing is held or queued, the client
works, and no call took longer than it may. `make test` takes a few moments of each operation,
`make marathon` all of them.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from types import FrameType
from zlib import crc32

import pytest

import holdfast
from holdfast.runtime.call_pool import CallPool
from tests.conformance.engines import ENGINES, Subject
from tests.conformance.turns import THOROUGH
from tests.faults.children import eventually
from tests.faults.injection import NEVER_RAN, Injected, Moments, count_moments, goes_on, in_product
from tests.interrupts.operations import OPERATIONS, Operation, Work, World

TTL = 2.0
SAMPLE = 3
"""How many moments of an operation `make test` takes with each error."""
SPARE = 1.0
"""How much longer than its wait a call may take."""


def lost(where: str) -> holdfast.LockLost:
    """What a watchdog raises that checks another grant."""
    return holdfast.LockLost("another lock", 1, where)


def not_held(where: str) -> holdfast.NotHeld:
    """What a handler raises that releases another grant a second time."""
    return holdfast.NotHeld("another lock", 1, where)


def not_done(where: str) -> holdfast.EngineUnavailable:
    """What a handler raises that uses a client whose engine is not there."""
    return holdfast.EngineUnavailable("another engine", where, "not done")


def conflict(where: str) -> holdfast.Conflict:
    """What a handler raises that writes another cell."""
    return holdfast.Conflict(where, 1, 2)


ERRORS: tuple[Callable[[str], BaseException], ...] = (KeyboardInterrupt, Injected, lost, not_held, not_done, conflict)

pytestmark = [
    pytest.mark.usefixtures("garbage_is_collected"),
    pytest.mark.filterwarnings(
        NEVER_RAN,
        # The grant of an interrupted call is garbage: the keeper gives it back.
        "ignore:.* was neither released nor lost:ResourceWarning",
        # The same as NEVER_RAN, where the call is thrown away in a function that has no names to warn with.
        "ignore:Exception ignored while finalizing coroutine:pytest.PytestUnraisableExceptionWarning",
        "ignore:Exception ignored in. <coroutine object:pytest.PytestUnraisableExceptionWarning",
        # A generator that is thrown away is entered once more, and Python only prints what is raised there.
        "ignore:Exception ignored in. <generator object:pytest.PytestUnraisableExceptionWarning",
        # A socket that was just being opened.
        "ignore:unclosed <socket:ResourceWarning",
    ),
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "subject" not in metafunc.fixturenames:
        return
    subjects = [subject for subject in ENGINES if THOROUGH or subject.like is None]
    metafunc.parametrize("subject", subjects, ids=lambda subject: subject.name)
    metafunc.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)


def chosen(moments: int, of: str) -> list[int]:
    """The moments that this run takes: spread over the operation, others for each operation and engine."""
    if THOROUGH or moments <= SAMPLE:
        return list(range(moments))
    stride = moments / SAMPLE
    first = crc32(of.encode()) % max(1, int(stride))
    return [int(first + stride * number) for number in range(SAMPLE)]


def took(work: Work, seconds: list[float]) -> Work:
    """The same work, timed."""

    def timed() -> None:
        began = time.monotonic()
        try:
            work()
        finally:
            seconds.append(time.monotonic() - began)

    return timed


def left(rival: holdfast.Client, names: list[str]) -> list[str]:
    """Those of these names on which there is still a claim."""
    if rival.guarantees.recorded:
        return [info.name for info in rival.list()]
    return [name for name in names if not can_be_taken(rival, name)]


def can_be_taken(rival: holdfast.Client, name: str) -> bool:
    grant = rival.lock(name).try_acquire()
    if grant is not None:
        grant.release()
    return grant is not None


def pools_of(locks: holdfast.Client) -> list[CallPool[object]]:
    """The pools from which the calls of a client borrow."""
    found: dict[int, object] = {}
    look_at: list[object] = [locks._core.verbs]
    while look_at:
        one = look_at.pop()
        if id(one) not in found:
            found[id(one)] = one
            look_at += [
                each
                for each in gc.get_referents(one)
                if type(each) in (dict, list, tuple) or type(each).__module__.startswith("holdfast.")
            ]
    return [one for one in found.values() if isinstance(one, CallPool)]


def can_lend_all(locks: holdfast.Client) -> bool:
    """Whether no item of a pool is lent outside of any call, after a call that has looked for such items."""
    with holdfast.owner("another"), locks.lock("afterwards", wait=1.0) as grant:
        assert grant.valid
    return not any(item.is_lent and item.loan.borrower is None for pool in pools_of(locks) for item in pool.items)


def test_an_interrupt_at_any_moment_leaves_nothing_behind(
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
        names: list[str] = []
        where: dict[str, str] = {}

        def begin(at: str) -> tuple[Work, Work]:
            names.append(f"{operation.name.replace(' ', '-')}-{at}")
            return operation.prepare(world, names[-1])

        for warm in range(2):
            work, afterwards = begin(f"warm-{warm}")
            moments = count_moments(work)
            afterwards()
        assert moments > SAMPLE
        for error in ERRORS:
            for at in chosen(moments, f"{subject.name} {operation.name} {error.__name__}"):
                # On a busy machine one may be late. One that is late again is no chance.
                for attempt in ("", "-again"):
                    work, afterwards = begin(f"{error.__name__}-{at}{attempt}")
                    fault, seconds = Moments(at, error), list[float]()
                    # An engine may tell of the interrupt as a request without an answer.
                    with suppress(KeyboardInterrupt, Injected, holdfast.HoldfastError):
                        fault.run(took(work, seconds))
                    where[names[-1]] = fault.where
                    afterwards()
                    if seconds[0] < operation.limit + SPARE:
                        break
                else:
                    raise AssertionError(f"{seconds[0]:.1f} s, for the second time, interrupted at {fault.where}")
        until = time.monotonic() + TTL + subject.lag + 2 * SPARE
        while still := left(world.rival, names):
            assert time.monotonic() < until, f"left behind: {[(name, where.get(name)) for name in still]}"
            time.sleep(0.05)
        # A keeper may be giving one back just now.
        eventually(lambda: can_lend_all(world.locks), "an interrupt has used up an item of a pool")


class Twice(Moments):
    """Raises at the chosen moment, and once more at a function's entry after it, while the first one is handled."""

    def __init__(self, chosen: int, after: int) -> None:
        super().__init__(chosen, KeyboardInterrupt)
        self._after = after

    def run(self, work: Work) -> None:
        # What a profiler raises switches it off; a tracer goes on.
        sys.settrace(self._trace)
        try:
            super().run(work)
        finally:
            sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _: object) -> None:
        if self.where and event == "call" and not goes_on(frame) and in_product(frame):
            self._after -= 1
            if self._after == 0:
                error = self.error(self.where)
                assert error is not None
                raise error


@pytest.mark.parametrize("after", [1, 2, 3, 5, 8, 13])
def test_a_second_interrupt_while_the_first_is_handled_leaves_no_table_half_made(after: int) -> None:
    url = f"memory://twice-{after}"
    with holdfast.connect(url, ttl=TTL) as locks, holdfast.connect(url, ttl=TTL) as rival:

        def work(name: str) -> None:
            with locks.lock(name, wait=1.0):
                pass

        moments = count_moments(lambda: work("warm"))
        for at in range(0, moments, 1 if THOROUGH else 3):
            with suppress(KeyboardInterrupt, holdfast.HoldfastError):
                Twice(at, after).run(lambda at=at: work(f"twice-{at}"))  # type: ignore[misc]
            # Any step of any client finds a whole table.
            with rival.lock("other", wait=1.0):
                rival.list()
