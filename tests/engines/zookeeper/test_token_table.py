"""Tokens from zxids: they grow with every write, over elections, and no election puts them far ahead of the clock."""

from __future__ import annotations

import random

import pytest

import holdfast
from holdfast.engines.zookeeper.node_data import packed
from holdfast.engines.zookeeper.token_table import MOST_EPOCHS, ROOM, Epoch, TokenTable
from tests.engines.zookeeper.patience import eventually
from tests.servers.zookeeper import Ensemble, ZooKeeperServer

BASE = 1_800_000_000_000_000


def zxid(epoch: int, counter: int) -> int:
    return (epoch << 32) + counter


def test_the_tokens_of_a_new_namespace_start_at_its_base() -> None:
    table = TokenTable.begun(BASE, zxid(3, 4_000_000_000))

    assert table.token(zxid(3, 4_000_000_001)) == BASE + 1


def test_an_election_costs_no_more_than_what_was_set_aside() -> None:
    table = TokenTable.begun(BASE, zxid(1, 10))
    for epoch in range(2, 100):
        table = table.with_room(zxid(epoch, 1))

    found = table.token(zxid(99, 1))
    assert found is not None
    assert BASE < found < BASE + 99 * (ROOM + 3)


@pytest.mark.parametrize("seed", range(30))
def test_numbers_that_were_given_grow_with_the_zxids_whichever_copy_of_the_table_gave_them(seed: int) -> None:
    chance = random.Random(seed)
    tables = [TokenTable.begun(BASE, zxid(1, 5))]
    epoch, counter = 1, 5
    given: list[tuple[int, int]] = []
    for _ in range(400):
        if chance.random() < 0.1:
            epoch, counter = epoch + chance.randint(1, 3), 0
        counter += chance.choice((1, 2, ROOM // 3, ROOM * 2))
        written = zxid(epoch, counter)
        kept = tables[-1]
        if chance.random() < 0.6 and (kept.token(written) is None or kept.is_short(written)):
            tables.append(kept.with_room(written))
        copy = chance.choice(tables)
        for table in (copy, tables[-1]):
            number = table.token(written)
            if number is not None:
                given.append((written, number))
        assert TokenTable.read(tables[-1].as_dict()) == tables[-1]
    ordered = sorted(set(given))
    assert len({written for written, _ in ordered}) == len(ordered) == len({number for _, number in ordered})
    assert [number for _, number in ordered] == sorted(number for _, number in ordered)


def test_a_write_of_a_former_epoch_that_got_no_number_is_between_what_was_given() -> None:
    table = TokenTable.begun(BASE, zxid(1, 0))
    before = table.token(zxid(1, ROOM))
    table = table.with_room(zxid(4, 1))
    after = table.token(zxid(4, 0))
    assert before is not None
    assert after is not None

    for late in (zxid(1, ROOM + 1), zxid(2, 0), zxid(3, 2**32 - 1)):
        assert table.token(late) is None
        version = table.version(late)
        assert version is not None
        assert before < version < after


def test_elections_without_end_do_not_make_the_table_grow_nor_versions_shrink() -> None:
    table = TokenTable.begun(BASE, zxid(1, 0))
    cell = zxid(2, 5)
    versions: list[int] = []
    tokens: list[int] = []
    for epoch in range(2, 3 * MOST_EPOCHS):
        table = table.with_room(zxid(epoch, 1))
        tokens.append(table.token(zxid(epoch, 1)) or 0)
        versions.append(table.version(cell) or 0)

    assert len(table.epochs) == MOST_EPOCHS
    assert len(packed(table.as_dict())) < 100_000
    assert tokens == sorted(set(tokens))
    assert versions == sorted(versions)
    assert all(0 < version < token for version, token in zip(versions, tokens[1:], strict=False))


def test_what_can_still_be_set_aside_has_no_version_yet_but_an_estimate() -> None:
    table = TokenTable.begun(BASE, zxid(1, 0))

    for late in (zxid(1, ROOM + 1), zxid(2, 7)):
        assert table.version(late) is None
        assert table.estimate(late) == table.with_room(late).token(late)
    assert table.epochs == (Epoch(1, 0, ROOM),)


def test_tokens_and_versions_grow_over_elections_and_a_fresh_ensemble_begins_above_them(chroot: str) -> None:
    with Ensemble() as ensemble:
        tokens: list[int] = []
        versions: list[int] = []
        with holdfast.connect(ensemble.url + chroot, ttl=20.0) as locks:
            for _ in range(3):
                eventually(lambda: _works(locks), "a leader")
                with locks.lock("k") as grant, locks.semaphore("s", limit=1) as permit:
                    tokens += [grant.token, permit.token]
                versions.append(locks.cell("c").set(len(tokens)))
                leader = ensemble.leader
                leader.kill()
                leader.start()
            eventually(lambda: _works(locks), "a leader")
            assert locks.cell("c").get()[1] == versions[-1]
            with locks.lock("k") as grant:
                assert locks.inspect("k").holders[0].token == grant.token
                tokens.append(grant.token)
    with ZooKeeperServer() as server, holdfast.connect(server.url + chroot) as locks, locks.lock("k") as grant:
        first = grant.token

    assert tokens == sorted(set(tokens))
    assert versions == sorted(set(versions))
    assert first > max(tokens + versions)


def _works(locks: holdfast.Client) -> bool:
    try:
        locks.lock("reach").acquire(wait=2.0).release()
    except (holdfast.EngineUnavailable, holdfast.NotAcquired, holdfast.LockLost):
        return False
    return True


def test_tokens_that_run_out_are_set_aside_anew(url: str) -> None:
    """As after very many writes of the ensemble that no heartbeat has seen."""
    with holdfast.connect(url) as locks:
        with locks.lock("k") as grant:
            before = grant.token
        engine = locks._core.engine
        (member,) = engine.ledger.members.values()  # type: ignore[attr-defined]
        link = member.link
        spent = link.tokens._replace(epochs=tuple(one._replace(upto=one.upto - ROOM) for one in link.tokens.epochs))
        link.tokens = spent
        with locks.lock("k") as grant:
            after = grant.token

        assert before < after < before + ROOM
        assert link.tokens.epochs[-1].upto > spent.epochs[-1].upto
