"""The operations that are cancelled: each as a careful program writes it, on a name of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import holdfast
from holdfast import aio
from holdfast.model import Guarantees

WAIT = 0.05
"""How long an operation waits that times out, and after which one that waits is granted."""

HEARS = 1.0
"""Within which time a sender hears that another client has adopted its grant."""


@dataclass
class Pair:
    """The client whose task is cancelled, another one of the same engine, and what makes more of them."""

    locks: aio.Client
    rival: aio.Client
    connect: Callable[[], Awaitable[aio.Client]]


Work = Callable[[], Coroutine[Any, Any, Any]]
Make = Callable[[aio.Client, str], aio.Lock | aio.AllLocks]
Prepare = Callable[[Pair, str], Awaitable[tuple[Work, Work]]]
"""Makes the work that is cancelled, and what the program does after it, cancelled or not."""


@dataclass(frozen=True)
class Cancelled:
    name: str
    prepare: Prepare
    can: Callable[[Guarantees], bool] = lambda _: True
    limit: float = 1.0
    """How long it may wait by itself."""


async def nothing() -> None:
    """There is nothing more to do."""


async def released(grant: aio.Grant) -> None:
    """Release a grant, whatever became of it."""
    with suppress(holdfast.HoldfastError):
        await grant.release()


def entering(make: Make) -> Prepare:
    """An `async with` over what no other client holds."""

    async def prepare(pair: Pair, name: str) -> tuple[Work, Work]:
        async def work() -> None:
            async with make(pair.locks, name):
                await asyncio.sleep(0)

        return work, nothing

    return prepare


def waiting(make: Make, released_soon: bool, held_by_rival: Make | None = None) -> Prepare:
    """An `async with` over what another client holds, and releases meanwhile or does not."""

    async def prepare(pair: Pair, name: str) -> tuple[Work, Work]:
        held = await (held_by_rival or make)(pair.rival, name).acquire(wait=5.0)

        async def release_soon() -> None:
            await asyncio.sleep(WAIT)
            await held.release()

        releasing = asyncio.create_task(release_soon()) if released_soon else None

        async def work() -> None:
            with suppress(holdfast.NotAcquired):
                grant = await make(pair.locks, name).acquire(wait=1.0 if released_soon else WAIT)
                await grant.release()

        async def afterwards() -> None:
            await (releasing if releasing is not None else held.release())

        return work, afterwards

    return prepare


async def tries(pair: Pair, name: str) -> tuple[Work, Work]:
    async def work() -> None:
        grant = await pair.locks.lock(name).try_acquire()
        if grant is not None:
            await grant.release()

    return work, nothing


def releases(waited_for: bool) -> Prepare:
    """A release, with another client behind it or not. Nothing is held after it."""

    async def prepare(pair: Pair, name: str) -> tuple[Work, Work]:
        grant = await pair.locks.lock(name).acquire(wait=5.0)
        following = asyncio.create_task(pair.rival.lock(name).acquire(wait=5.0)) if waited_for else None
        await asyncio.sleep(0.02 if waited_for else 0.0)

        async def afterwards() -> None:
            # One that was cancelled before its first step has not begun.
            await released(grant)
            assert not grant.valid, "still valid after its release"
            if following is not None:
                await (await following).release()

        return grant.release, afterwards

    return prepare


async def renews(pair: Pair, name: str) -> tuple[Work, Work]:
    grant = await pair.locks.lock(name).acquire(wait=5.0)

    async def afterwards() -> None:
        grant.check()
        await grant.release()

    return grant.renew, afterwards


async def all_released(pair: Pair, name: str) -> tuple[Work, Work]:
    grants = await pair.locks.lock_all(name, f"{name}-b").acquire(wait=5.0)

    async def afterwards() -> None:
        with suppress(holdfast.HoldfastError):
            await grants.release()

    return grants.release, afterwards


async def reentry(pair: Pair, name: str) -> tuple[Work, Work]:
    lock = pair.locks.lock(name, reentrant=True, wait=1.0)

    async def work() -> None:
        async with lock, lock:
            await asyncio.sleep(0)

    return work, nothing


async def hands_over(pair: Pair, name: str) -> tuple[Work, Work]:
    grant = await pair.locks.lock(name).acquire(wait=5.0)

    async def afterwards() -> None:
        grant.check()
        assert await pair.rival.lock(name).try_acquire() is None, "another client got it too"
        await grant.release()

    return grant.hand_over, afterwards


def adopts(own: bool) -> Prepare:
    """What the client itself or another one has handed over. It is either the adopter's or still the sender's."""

    async def prepare(pair: Pair, name: str) -> tuple[Work, Work]:
        sender = await (pair.locks if own else pair.rival).lock(name).acquire(wait=5.0)
        text = await sender.hand_over()

        async def work() -> None:
            await (await pair.locks.adopt(text)).release()

        async def afterwards() -> None:
            other = pair.rival if own else pair.locks
            third = await other.lock(name).try_acquire()
            if third is not None:
                # The sender hears of the adoption by a notice.
                await asyncio.wait_for(sender.lost.wait(), HEARS)
                await third.release()
            await released(sender)

        return work, afterwards

    return prepare


async def updates(pair: Pair, name: str) -> tuple[Work, Work]:
    async def afterwards() -> None:
        value, _ = await pair.rival.cell(name).get()
        assert value in (None, 1)

    return lambda: pair.locks.cell(name).update(lambda value: (value or 0) + 1), afterwards


async def watches_a_cell(pair: Pair, name: str) -> tuple[Work, Work]:
    await pair.rival.cell(name).set(0)

    async def work() -> None:
        async with pair.locks.cell(name).watch() as values:
            assert (await anext(values))[0] == 0
            await pair.rival.cell(name).set(1)
            assert (await anext(values))[0] == 1

    return work, nothing


async def once(pair: Pair, name: str) -> tuple[Work, Work]:
    async def one(_: object) -> int:
        await asyncio.sleep(0)
        return 1

    async def afterwards() -> None:
        assert await pair.rival.once(name, wait=5.0).run(one) == 1

    return lambda: pair.locks.once(name, wait=1.0).run(one), afterwards


async def elects(pair: Pair, name: str) -> tuple[Work, Work]:
    election = pair.locks.election(name, "value")

    async def work() -> None:
        await election.campaign(wait=1.0)
        await election.leader()
        await election.resign()

    return work, election.resign


def barrier(comes: bool) -> Prepare:
    """A party that waits in vain, or that completes the barrier."""

    async def prepare(pair: Pair, name: str) -> tuple[Work, Work]:
        async def party(client: aio.Client, seconds: float) -> None:
            with suppress(holdfast.NotAcquired):
                await client.barrier(name, 2).wait(wait=seconds)

        other = asyncio.create_task(party(pair.rival, 0.3)) if comes else None
        await asyncio.sleep(0.02 if comes else 0.0)

        async def afterwards() -> None:
            if other is not None:
                await other

        return lambda: party(pair.locks, 1.0 if comes else WAIT), afterwards

    return prepare


async def latch(pair: Pair, name: str) -> tuple[Work, Work]:
    latch = pair.locks.latch(name, 2)

    async def work() -> None:
        await latch.count_down()
        with suppress(holdfast.NotAcquired):
            await latch.wait(wait=WAIT)

    return work, nothing


async def appends(pair: Pair, name: str) -> tuple[Work, Work]:
    async def afterwards() -> None:
        assert await pair.rival.log(name).read() in ([], ["event"])

    return lambda: pair.locks.log(name).append(["event"], expected=0), afterwards


async def joins(pair: Pair, name: str) -> tuple[Work, Work]:
    member = pair.locks.partition(name, "member")

    async def work() -> None:
        await member.join()
        await member.leave()

    return work, member.leave


async def watches(pair: Pair, name: str) -> tuple[Work, Work]:
    async def work() -> None:
        async with pair.locks.watch(name) as events:
            async with pair.rival.lock(name, wait=1.0):
                await anext(events)

    return work, nothing


async def looks(pair: Pair, name: str) -> tuple[Work, Work]:
    held = await pair.rival.lock(name).acquire(wait=5.0)

    async def work() -> None:
        await pair.locks.inspect(name)
        if pair.locks.guarantees.recorded:
            await pair.locks.list(name)

    return work, held.release


async def breaks(pair: Pair, name: str) -> tuple[Work, Work]:
    held = await pair.rival.lock(name).acquire(wait=5.0)
    return lambda: pair.locks.break_lock(name), lambda: released(held)


async def closes(pair: Pair, name: str) -> tuple[Work, Work]:
    client = await pair.connect()
    grant = await client.lock(name).acquire(wait=5.0)

    async def afterwards() -> None:
        await client.close()
        assert not grant.valid

    return client.close, afterwards


def plain(client: aio.Client, name: str) -> aio.Lock:
    return client.lock(name, wait=1.0)


def reader(client: aio.Client, name: str) -> aio.Lock:
    return client.rwlock(name, wait=1.0).read()


def writer(client: aio.Client, name: str) -> aio.Lock:
    return client.rwlock(name, wait=1.0).write()


def only_permit(client: aio.Client, name: str) -> aio.Lock:
    return client.semaphore(name, 1, wait=1.0)


def subtree(client: aio.Client, name: str) -> aio.Lock:
    return client.lock(name, subtree=True, wait=1.0)


def both(client: aio.Client, name: str) -> aio.AllLocks:
    return client.lock_all(name, f"{name}-b", wait=1.0)


def second(client: aio.Client, name: str) -> aio.Lock:
    return client.lock(f"{name}-b", wait=1.0)


def shares(can: Guarantees) -> bool:
    return "shared" in can.modes


def counts(can: Guarantees) -> bool:
    return "semaphore" in can.modes


def covers(can: Guarantees) -> bool:
    return "subtree" in can.modes


def keeps(can: Guarantees) -> bool:
    return can.cells


def records(can: Guarantees) -> bool:
    return can.recorded


CANCELLED = (
    Cancelled("with", entering(plain)),
    Cancelled("with a read lock", entering(reader), shares),
    Cancelled("with a semaphore", entering(only_permit), counts),
    Cancelled("with a subtree", entering(subtree), covers),
    Cancelled("with lock_all", entering(both)),
    Cancelled("re-entry", reentry),
    Cancelled("try_acquire", tries),
    Cancelled("a wait that times out", waiting(plain, False), limit=WAIT),
    Cancelled("a wait to read that times out", waiting(reader, False, writer), shares, limit=WAIT),
    Cancelled("a wait for a permit that times out", waiting(only_permit, False), counts, limit=WAIT),
    Cancelled("a wait for lock_all that times out", waiting(both, False, second), limit=WAIT),
    Cancelled("a wait that is granted", waiting(plain, True)),
    Cancelled("a wait for a permit that is granted", waiting(only_permit, True), counts),
    Cancelled("a wait for lock_all that is granted", waiting(both, True, second)),
    Cancelled("release", releases(False)),
    Cancelled("release to a waiter", releases(True)),
    Cancelled("release of lock_all", all_released),
    Cancelled("renew", renews),
    Cancelled("hand_over", hands_over, lambda can: can.hand_over),
    Cancelled("adopt", adopts(own=False), lambda can: can.hand_over),
    Cancelled("adopt of its own", adopts(own=True), lambda can: can.hand_over),
    Cancelled("cell update", updates, keeps),
    Cancelled("cell watch", watches_a_cell, keeps),
    Cancelled("once", once, keeps),
    Cancelled("election", elects, records),
    Cancelled("a barrier that waits in vain", barrier(False), lambda can: can.cells and can.recorded, limit=WAIT),
    Cancelled("a barrier", barrier(True), lambda can: can.cells and can.recorded),
    Cancelled("latch", latch, keeps, limit=WAIT),
    Cancelled("log append", appends, keeps),
    Cancelled("partition", joins, lambda can: can.cells and can.recorded),
    Cancelled("watch", watches, lambda can: bool(can.events)),
    Cancelled("inspect and list", looks),
    Cancelled("break_lock", breaks, records),
    Cancelled("close", closes),
)
