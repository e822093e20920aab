"""A database whose clock was set back: times that it has written are as far in the future as the jump."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

import holdfast
from tests.engines.postgres.patience import eventually

Database = psycopg.Connection[Any]
JUMP = 3600.0


def set_back(database: Database, schema: str) -> None:
    """Leave the table as it is after the clock was set back."""
    with database.transaction():
        database.execute(f"UPDATE {schema}.sessions SET expires_at = expires_at + %s", (JUMP,))
        database.execute(f"UPDATE {schema}.claims SET since = since + %s, dies_at = dies_at + %s", (JUMP, JUMP))


def die(locks: holdfast.Client) -> None:
    """Send no more heartbeats."""
    core = locks._core
    assert core.keeper is not None
    assert core.session is not None
    core.keeper.end(core.session, "it is dead")


def test_a_dead_holder_keeps_its_lock_no_longer_than_a_ttl(
    connect: Callable[..., holdfast.Client], database: Database, schema: str
) -> None:
    dead, others = connect(ttl=1.0), connect(ttl=1.0)
    lost = dead.lock("k").acquire()
    others.lock("other").acquire().release()
    die(dead)
    assert not lost.valid
    set_back(database, schema)

    others.lock("k").acquire(wait=20.0).release()


def test_a_dead_holder_keeps_its_lock_no_longer_from_a_client_that_only_tries(
    connect: Callable[..., holdfast.Client], database: Database, schema: str
) -> None:
    dead = connect(ttl=1.0)
    lost = dead.lock("k").acquire()
    die(dead)
    assert not lost.valid
    set_back(database, schema)
    others = connect(ttl=1.0)

    def is_free() -> bool:
        grant = others.lock("k").try_acquire()
        if grant is not None:
            grant.release()
        return grant is not None

    eventually(is_free, within=20.0)


def test_a_broken_lock_is_free_after_a_ttl(
    connect: Callable[..., holdfast.Client], database: Database, schema: str
) -> None:
    holder, operator, others = connect(ttl=2.0), connect(ttl=2.0), connect(ttl=2.0)
    let_go = threading.Event()
    lost = holder.lock("k", on_lost=lambda _: let_go.wait(60.0)).acquire()
    others.lock("other").acquire().release()
    breaking = threading.Thread(target=operator.break_lock, args=("k",))
    breaking.start()
    broken = f"SELECT count(*) FROM {schema}.claims WHERE dies_at IS NOT NULL"
    eventually(lambda: database.execute(broken).fetchone() == (1,))
    set_back(database, schema)

    others.lock("k").acquire(wait=20.0).release()
    let_go.set()
    breaking.join(20.0)
    assert not lost.valid


@pytest.mark.parametrize("beats", [1, 3])
def test_a_holder_that_lives_keeps_its_lock(
    connect: Callable[..., holdfast.Client], database: Database, schema: str, beats: int
) -> None:
    holder, others = connect(ttl=1.5), connect(ttl=1.5)
    grant = holder.lock("k").acquire()
    for _ in range(beats):
        set_back(database, schema)
        grant.renew()

    assert others.lock("k").try_acquire() is None
    grant.release()
