"""Many readers or one writer."""

from __future__ import annotations

import asyncio

import pytest

from tests.conformance.abilities import needs
from tests.conformance.apis import Front
from tests.conformance.stage import Stage, soon


@pytest.mark.any_connection
@needs("shared")
async def test_readers_hold_together(stage: Stage, locks: Front, rival: Front) -> None:
    readers = [await client.rwlock("k").read().try_acquire() for client in (locks, rival, stage.another(locks))]

    assert all(reader is not None and reader.valid and reader.shared for reader in readers)


@needs("shared")
async def test_a_writer_holds_alone(locks: Front, rival: Front) -> None:
    writing = await locks.rwlock("k").write().acquire()

    assert await rival.rwlock("k").read().try_acquire() is None
    assert await rival.rwlock("k").write().try_acquire() is None
    assert writing.valid


@needs("shared")
async def test_readers_keep_writers_out(locks: Front, rival: Front) -> None:
    reading = await locks.rwlock("k").read().acquire()

    assert await rival.rwlock("k").write().try_acquire() is None
    await reading.release()
    assert await rival.rwlock("k").write().try_acquire() is not None


@needs("shared")
async def test_a_lock_is_the_write_side_of_an_rwlock(locks: Front, rival: Front) -> None:
    held = await locks.lock("k").acquire()

    assert await rival.rwlock("k").read().try_acquire() is None
    await held.release()
    reading = await rival.rwlock("k").read().acquire()
    assert await locks.lock("k").try_acquire() is None
    assert reading.valid


@pytest.mark.any_connection
@needs("shared")
async def test_a_waiting_writer_is_not_overtaken_by_later_readers(stage: Stage, locks: Front, rival: Front) -> None:
    first = await locks.rwlock("k").read().acquire()
    writer = await stage.queued(locks, "k", rival.rwlock("k").write().acquire())
    late = await stage.queued(locks, "k", stage.another(locks).rwlock("k").read().acquire())
    assert await stage.another(rival).rwlock("k").read().try_acquire() is None
    await first.release()
    writing = await soon(writer)

    assert not late.done()
    await writing.release()
    assert (await soon(late)).token > writing.token


@needs("shared")
async def test_a_release_wakes_the_whole_leading_run_of_readers(stage: Stage, locks: Front, rival: Front) -> None:
    writing = await locks.rwlock("k").write().acquire()
    readers = [await stage.queued(locks, "k", stage.another(rival).rwlock("k").read().acquire()) for _ in range(3)]
    writer = await stage.queued(locks, "k", locks.rwlock("k", reentrant=False).write().by(stage.actor()).acquire())
    behind = await stage.queued(locks, "k", stage.another(rival).rwlock("k").read().acquire())
    await writing.release()
    grants = await soon(asyncio.gather(*readers))

    assert all(grant.valid for grant in grants)
    assert not writer.done()
    assert not behind.done()
    for grant in grants:
        await grant.release()
    last = await soon(writer)
    assert last.token > max(grant.token for grant in grants)
    await last.release()
    assert (await soon(behind)).valid


@needs("shared")
async def test_a_writer_has_a_higher_token_than_every_reader_before_it(locks: Front, rival: Front) -> None:
    tokens = []
    for client in (locks, rival):
        reading = await client.rwlock("k").read().acquire()
        tokens.append(reading.token)
        await reading.release()
    writing = await locks.rwlock("k").write().acquire()

    assert writing.token > max(tokens)


@needs("shared")
async def test_a_reader_that_gives_up_leaves_no_place(locks: Front, rival: Front) -> None:
    writing = await locks.lock("k").acquire()
    assert await rival.rwlock("k").read().try_acquire() is None

    assert (await locks.inspect("k")).waiters == ()
    assert writing.valid


@needs("shared")
async def test_one_owner_may_read_twice(locks: Front, rival: Front) -> None:
    first = await locks.rwlock("k").read().acquire()
    second = await locks.rwlock("k").read().acquire(wait=1.0)
    await first.release()

    assert second.valid
    assert await rival.lock("k").try_acquire() is None
    await second.release()
    assert await rival.lock("k").try_acquire() is not None
