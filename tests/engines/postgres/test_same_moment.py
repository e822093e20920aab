"""Steps that meet: rows that do not exist yet cannot be locked, so something else has to make them see each other."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast.core import names
from holdfast.engines.postgres.schema import lock_class
from tests.engines.postgres.patience import eventually

Connect = Callable[..., holdfast.Client]
ROUNDS = 60


def together(*works: Callable[[], Any]) -> list[Any]:
    """Do several things at the same moment; what became of each, an exception included."""
    start = threading.Barrier(len(works))

    def do(work: Callable[[], Any]) -> Any:
        start.wait()
        until = time.monotonic() + 60
        while True:
            try:
                return work()
            except holdfast.EngineUnavailable as error:
                # A machine that is busy with other things: what does not wait has half a second for its answer.
                if time.monotonic() > until:
                    return error
            except holdfast.HoldfastError as error:
                return error

    with ThreadPoolExecutor(len(works)) as threads:
        return list(threads.map(do, works))


def test_a_subtree_claim_and_a_claim_under_it_never_both_get_through(connect: Connect) -> None:
    one, other = connect(), connect()
    for number in range(ROUNDS):
        above = one.lock(f"db{number}", subtree=True)
        below = other.lock(f"db{number}/users/7")

        found = together(above.try_acquire, below.try_acquire)

        grants = [grant for grant in found if grant is not None]
        assert len(grants) == 1
        grants[0].release()


def test_two_claims_that_queue_at_the_same_moment_see_each_other(connect: Connect) -> None:
    assert names.bucket("x") != names.bucket("y")
    one, other = connect(), connect()
    for _ in range(ROUNDS):
        held = together(
            lambda: owned(one, "one", "x"),
            lambda: owned(other, "other", "y"),
        )

        found = together(
            functools.partial(owned, one, "one", "y", held[0]),
            functools.partial(owned, other, "other", "x", held[1]),
        )

        assert sorted(type(what).__name__ for what in found) == ["Deadlock", "Grant"]
        for grant in [*held, *found]:
            if isinstance(grant, holdfast.Grant) and grant.valid:
                grant.release()


def owned(client: holdfast.Client, owner: str, name: str, held: holdfast.Grant | None = None) -> holdfast.Grant:
    """Take a lock as this owner; whoever is refused lets go of what it holds."""
    with holdfast.owner(owner):
        try:
            return client.lock(name, wait=20.0).acquire()
        except holdfast.Deadlock:
            assert held is not None
            held.release()
            raise


def test_many_clients_that_make_the_schema_at_the_same_moment_all_find_it(connect: Connect) -> None:
    clients = [connect() for _ in range(6)]
    for client in clients:
        client._core.call_limit = 60.0  # five of them wait for the sixth

    found = together(*(lambda client=client: client.lock("k").try_acquire() for client in clients))

    grants = [grant for grant in found if grant is not None]
    assert len(grants) == 1
    grants[0].release()


@pytest.mark.parametrize(
    ("name", "begin"),
    [
        ("c", lambda locks: next(locks.cell("c").watch())),
        ("db/users", lambda locks: locks.watch("db/").__enter__()),
        ("anything", lambda locks: locks.watch("").__enter__()),
    ],
    ids=["a cell", "a prefix", "everything"],
)
def test_a_watch_begins_after_the_steps_that_have_not_seen_it(
    connect: Connect, database: psycopg.Connection[Any], schema: str, name: str, begin: Callable[[Any], Any]
) -> None:
    """Such a step may commit after the watch has begun, and nobody would be told."""
    locks = connect()
    locks.list()
    began = threading.Event()
    waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND classid::bigint = %s"
    number = lock_class(schema)

    def watch() -> None:
        begin(locks)
        began.set()

    with database.transaction():
        database.execute("SELECT pg_advisory_xact_lock(%s, %s)", (number, names.bucket(name)))
        watcher = threading.Thread(target=watch)
        watcher.start()
        eventually(lambda: database.execute(waiting, (number % 2**32,)).fetchone())
        assert not began.is_set()
    watcher.join(30.0)
    assert began.is_set()
