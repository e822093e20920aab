"""A lock that covers its name and everything under it."""

from __future__ import annotations

import pytest

from tests.conformance.abilities import needs
from tests.conformance.apis import Front
from tests.conformance.stage import Stage, soon


@pytest.mark.any_connection
@needs("subtree")
async def test_a_subtree_keeps_others_out_of_everything_under_it(locks: Front, rival: Front) -> None:
    held = await locks.lock("db", subtree=True).acquire()

    names = ["db", "db/users", "db/users/7"]
    assert [name for name in names if await rival.lock(name).try_acquire() is not None] == []
    assert held.valid


@needs("subtree")
async def test_a_subtree_covers_nothing_beside_it(locks: Front, rival: Front) -> None:
    held = await locks.lock("db", subtree=True).acquire()

    names = ["db2", "db2/users", "d", "other/db"]
    assert [name for name in names if await rival.lock(name).try_acquire() is None] == []
    assert held.valid


@needs("subtree")
async def test_a_lock_under_it_keeps_a_subtree_out(locks: Front, rival: Front) -> None:
    held = await locks.lock("db/users/7").acquire()

    assert await rival.lock("db", subtree=True).try_acquire() is None
    assert await rival.lock("db/users", subtree=True).try_acquire() is None
    assert await rival.lock("db/orders", subtree=True).try_acquire() is not None
    await held.release()
    assert await rival.lock("db/users", subtree=True).try_acquire() is not None


@needs("subtree")
async def test_a_plain_lock_covers_its_own_name_only(locks: Front, rival: Front) -> None:
    held = await locks.lock("db").acquire()

    assert await rival.lock("db/users").try_acquire() is not None
    assert held.valid


@needs("subtree")
async def test_tokens_grow_along_a_path(locks: Front, rival: Front) -> None:
    tokens = []
    for name, subtree in (("db/users/7", False), ("db", True), ("db/users", False), ("db/users", True), ("db", False)):
        held = await locks.lock(name, subtree=subtree).acquire()
        tokens.append(held.token)
        await held.release()

    assert tokens == sorted(set(tokens))


@needs("subtree")
async def test_the_earlier_arrival_goes_first_along_a_path(stage: Stage, locks: Front, rival: Front) -> None:
    below = await locks.lock("db/users").acquire()
    above = await stage.queued(locks, "db", rival.lock("db", subtree=True).acquire())
    assert await stage.another(locks).lock("db/orders").try_acquire() is None
    late = await stage.queued(locks, "db/users", stage.another(locks).lock("db/users").acquire())
    await below.release()
    whole = await soon(above)

    assert not late.done()
    await whole.release()
    assert (await soon(late)).token > whole.token


@needs("subtree")
async def test_a_shared_subtree_lets_readers_in_and_keeps_writers_out(locks: Front, rival: Front) -> None:
    held = await locks.rwlock("db", subtree=True).read().acquire()

    assert await rival.rwlock("db/users").read().try_acquire() is not None
    assert await rival.rwlock("db/orders").write().try_acquire() is None
    assert held.valid
