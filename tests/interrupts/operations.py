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
    """The client that is interrupted, another one of the same engine, and what makes more of them."""

    locks: holdfast.Client
    rival: holdfast.Client
    connect: Callable[[], holdfast.Client]


Work = Callable[[], Any]
Make = Callable[[holdfast.Client, str], holdfast.Lock | holdfast.AllLocks]
Prepare = Callable[[World, str], tuple[Work, Work]]
"""Makes the work that is interrupted, and what the program does after it, interrupted or not."""


@dataclass(frozen=True)
class Operation:
    name: str
    prepare: Prepare
    can: Callable[[Guarantees], bool] = lambda _: True
    limit: float = WAIT
    """How long it may wait by itself."""


def shares(can: Guarantees) -> bool:
    return "shared" in can.modes


def counts(can: Guarantees) -> bool:
    return "semaphore" in can.modes


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
    grant = world.locks.lock(name).acquire(wait=5.0)
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


def times_out(make: Make, held_by_rival: Make | None = None) -> Prepare:
    """A wait for what another client holds, in vain."""

    def prepare(world: World, name: str) -> tuple[Work, Work]:
        held = (held_by_rival or make)(world.rival, name).acquire(wait=5.0)
        lock = make(world.locks, name)

        def work() -> None:
            with suppress(holdfast.NotAcquired):
                lock.acquire(wait=WAIT)

        return work, held.release

    return prepare


def reader(locks: holdfast.Client, name: str) -> holdfast.Lock:
    return locks.rwlock(name).read()


def writer(locks: holdfast.Client, name: str) -> holdfast.Lock:
    return locks.rwlock(name).write()


def both(locks: holdfast.Client, name: str) -> holdfast.AllLocks:
    return locks.lock_all(name, f"{name}-b")


def second(locks: holdfast.Client, name: str) -> holdfast.Lock:
    return locks.lock(f"{name}-b")


def is_granted(world: World, name: str) -> tuple[Work, Work]:
    held = world.rival.lock(name).acquire(wait=5.0)
    lock = world.locks.lock(name)
    release = threading.Timer(WAIT, held.release)

    def work() -> None:
        with lock:
            pass

    release.start()
    return work, release.join


def permit_is_granted(world: World, name: str) -> tuple[Work, Work]:
    held = world.rival.semaphore(name, 1).acquire(wait=5.0)
    permit = world.locks.semaphore(name, 1)
    release = threading.Timer(WAIT, held.release)

    def work() -> None:
        with permit:
            pass

    release.start()
    return work, release.join


def hand_over(world: World, name: str) -> tuple[Work, Work]:
    grants = [world.locks.lock(name).acquire(wait=5.0)]

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


def elects(world: World, name: str) -> tuple[Work, Work]:
    election = world.locks.election(name, "value")

    def work() -> None:
        election.campaign(wait=1.0)
        election.resign()

    return work, election.resign


def barrier(world: World, name: str) -> tuple[Work, Work]:
    def work() -> None:
        with suppress(holdfast.NotAcquired):
            world.locks.barrier(name, 2).wait(wait=WAIT)

    return work, nothing


def latch(world: World, name: str) -> tuple[Work, Work]:
    latch = world.locks.latch(name, 2)

    def work() -> None:
        latch.count_down()
        with suppress(holdfast.NotAcquired):
            latch.wait(wait=WAIT)

    return work, nothing


def append(world: World, name: str) -> tuple[Work, Work]:
    def work() -> None:
        world.locks.log(name).append(["event"])

    def afterwards() -> None:
        assert world.rival.log(name).read() in ([], ["event"])

    return work, afterwards


def partition(world: World, name: str) -> tuple[Work, Work]:
    member = world.locks.partition(name, "member")

    def work() -> None:
        member.join()
        member.leave()

    return work, member.leave


def renews(world: World, name: str) -> tuple[Work, Work]:
    grant = world.locks.lock(name).acquire(wait=5.0)

    def afterwards() -> None:
        # What is not leased is lost with its connection, which an interrupt may have ended.
        if world.locks.guarantees.leased:
            grant.check()
        with suppress(holdfast.HoldfastError):
            grant.release()

    return grant.renew, afterwards


def breaks(world: World, name: str) -> tuple[Work, Work]:
    held = world.rival.lock(name).acquire(wait=5.0)

    def work() -> None:
        world.locks.break_lock(name)

    def afterwards() -> None:
        with suppress(holdfast.HoldfastError):
            held.release()

    return work, afterwards


def watches(world: World, name: str) -> tuple[Work, Work]:
    def work() -> None:
        with world.locks.watch(name) as events:
            with world.rival.lock(name, wait=1.0):
                assert next(events).name == name

    return work, nothing


def close(world: World, name: str) -> tuple[Work, Work]:
    locks = world.connect()
    grant = locks.lock(name).acquire(wait=5.0)

    def afterwards() -> None:
        locks.close()
        assert not grant.valid, "valid although its client is closed"

    return locks.close, afterwards


OPERATIONS = (
    Operation("acquire and release", explicit, limit=1.0),
    Operation("try_acquire", tries),
    Operation("with", block, limit=1.0),
    Operation("with a grant", grant_block),
    Operation("with a read lock", reader_block, shares, limit=1.0),
    Operation("semaphore", semaphore, counts, limit=1.0),
    Operation("re-entry", reentry, limit=1.0),
    Operation("lock_all", all_of, limit=1.0),
    Operation("a wait that times out", times_out(lambda locks, name: locks.lock(name))),
    Operation("a wait to read that times out", times_out(reader, writer), shares),
    Operation("a wait for a permit that times out", times_out(lambda locks, name: locks.semaphore(name, 1)), counts),
    Operation("a wait for lock_all that times out", times_out(both, second)),
    Operation("a wait that is granted", is_granted, limit=2.0),
    Operation("a wait for a permit that is granted", permit_is_granted, counts, limit=2.0),
    Operation("hand over and adopt", hand_over, lambda can: can.hand_over, limit=1.0),
    Operation("cell update", update, lambda can: can.cells, limit=1.0),
    Operation("once", once, lambda can: can.cells, limit=1.0),
    Operation("election", elects, lambda can: can.recorded, limit=1.0),
    Operation("barrier", barrier, lambda can: can.cells and can.recorded),
    Operation("latch", latch, lambda can: can.cells),
    Operation("log append", append, lambda can: can.cells, limit=1.0),
    Operation("partition", partition, lambda can: can.cells and can.recorded, limit=1.0),
    Operation("renew", renews, limit=1.0),
    Operation("break_lock", breaks, lambda can: can.recorded, limit=3.0),
    Operation("watch", watches, lambda can: bool(can.events), limit=1.0),
    Operation("close", close, limit=1.0),
)
