"""The operations that are interrupted: each as a careful program writes it, on a name of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import holdfast
from holdfast.model import Guarantees

WAIT = 0.02
"""How long an operation waits that times out, and after which one that waits is granted."""


@dataclass
class World:
    """The client that is interrupted, and another one of the same engine."""

    locks: holdfast.Client
    rival: holdfast.Client


Work = Callable[[], Any]
Prepare = Callable[[World, str], tuple[Work, Work]]
"""Makes the work that is interrupted, and what the program does after it, interrupted or not."""


@dataclass(frozen=True)
class Operation:
    name: str
    prepare: Prepare
    can: Callable[[Guarantees], bool] = lambda _: True
    kind: str = "lock"
    limit: float = WAIT
    """How long it may wait by itself."""


def nothing() -> None:
    """There is nothing more to do."""


def explicit(world: World, name: str) -> tuple[Work, Work]:
    grants: list[holdfast.Grant] = []

    def work() -> None:
        grants.append(world.locks.lock(name).acquire(wait=1.0))
        grants[0].release()

    def afterwards() -> None:
        # A release whose first bytecode was not reached has not begun: the program repeats it.
        if grants:
            with suppress(holdfast.HoldfastError):
                grants[0].release()

    return work, afterwards


def tries(world: World, name: str) -> tuple[Work, Work]:
    grants: list[holdfast.Grant | None] = []

    def work() -> None:
        grants.append(world.locks.lock(name).try_acquire())

    def afterwards() -> None:
        if grants and grants[0] is not None:
            grants[0].release()

    return work, afterwards


def block(world: World, name: str) -> tuple[Work, Work]:
    lock = world.locks.lock(name, wait=1.0)

    def work() -> None:
        with lock:
            pass

    return work, nothing


def grant_block(world: World, name: str) -> tuple[Work, Work]:
    grant = world.locks.lock(name).acquire(wait=1.0)
    entered: list[bool] = []

    def work() -> None:
        with grant:
            entered.append(True)

    def afterwards() -> None:
        # Before that the grant was the program's to release.
        if not entered:
            grant.release()

    return work, afterwards


def reader_block(world: World, name: str) -> tuple[Work, Work]:
    lock = world.locks.rwlock(name, wait=1.0).read()

    def work() -> None:
        with lock:
            pass

    return work, nothing


def semaphore(world: World, name: str) -> tuple[Work, Work]:
    permit = world.locks.semaphore(name, 2, wait=1.0)

    def work() -> None:
        with permit:
            pass

    return work, nothing


def reentry(world: World, name: str) -> tuple[Work, Work]:
    lock = world.locks.lock(name, reentrant=True, wait=1.0)
    outer = lock.acquire()

    def work() -> None:
        with lock:
            pass

    def afterwards() -> None:
        assert outer.valid, "the outer entry was released with the inner one"
        outer.release()

    return work, afterwards


def all_of(world: World, name: str) -> tuple[Work, Work]:
    locks = world.locks.lock_all(name, f"{name}-b", wait=1.0)

    def work() -> None:
        with locks:
            pass

    return work, nothing


def times_out(world: World, name: str) -> tuple[Work, Work]:
    held = world.rival.lock(name).acquire(wait=1.0)
    lock = world.locks.lock(name)

    def work() -> None:
        with suppress(holdfast.NotAcquired):
            lock.acquire(wait=WAIT)

    return work, held.release


def is_granted(world: World, name: str) -> tuple[Work, Work]:
    held = world.rival.lock(name).acquire(wait=1.0)
    lock = world.locks.lock(name)
    release = threading.Timer(WAIT, held.release)

    def work() -> None:
        with lock:
            pass

    release.start()
    return work, release.join


def hand_over(world: World, name: str) -> tuple[Work, Work]:
    grants = [world.locks.lock(name).acquire(wait=1.0)]

    def work() -> None:
        grants.append(world.locks.adopt(grants[0].hand_over()))
        grants[1].release()

    def afterwards() -> None:
        for grant in grants:
            with suppress(holdfast.HoldfastError):
                grant.release()

    return work, afterwards


def update(world: World, name: str) -> tuple[Work, Work]:
    cell = world.locks.cell(name)

    def work() -> None:
        cell.update(lambda value: (value or 0) + 1)

    def afterwards() -> None:
        value, _ = world.rival.cell(name).get()
        assert value in (None, 1)

    return work, afterwards


def once(world: World, name: str) -> tuple[Work, Work]:
    def work() -> None:
        world.locks.once(name, wait=1.0).run(lambda _: 1)

    def afterwards() -> None:
        # A worker that was interrupted has recorded nothing, or its result; the next one finds either.
        assert world.rival.once(name, wait=5.0).run(lambda _: 1) == 1

    return work, afterwards


OPERATIONS = (
    Operation("acquire and release", explicit, limit=1.0),
    Operation("try_acquire", tries),
    Operation("with", block, limit=1.0),
    Operation("with a grant", grant_block),
    Operation("with a read lock", reader_block, lambda can: "shared" in can.modes, limit=1.0),
    Operation("semaphore", semaphore, lambda can: "semaphore" in can.modes, "semaphore", limit=1.0),
    Operation("re-entry", reentry, limit=1.0),
    Operation("lock_all", all_of, limit=1.0),
    Operation("a wait that times out", times_out),
    Operation("a wait that is granted", is_granted, limit=2.0),
    Operation("hand over and adopt", hand_over, lambda can: can.hand_over, limit=1.0),
    Operation("cell update", update, lambda can: can.cells, "cell", limit=1.0),
    Operation("once", once, lambda can: can.cells, "once", limit=1.0),
)
