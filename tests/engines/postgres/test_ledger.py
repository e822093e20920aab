"""What a client remembers of its own requests."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast.core import urls
from holdfast.core.table import commands as cmd
from holdfast.core.table.rows import Session
from holdfast.engines.engine import nobody
from holdfast.engines.postgres.address import parse_address
from holdfast.engines.postgres.commits import VerbCall
from holdfast.engines.postgres.connections import Checked, Connections
from holdfast.engines.postgres.ledger import Ledger
from holdfast.engines.postgres.sockets import ThreadSockets
from holdfast.engines.postgres.table import PostgresTable
from holdfast.model import Claim, Granted, Place
from holdfast.runtime import clock
from holdfast.runtime.blocking import run
from tests.engines.postgres.patience import eventually

Connect = Callable[..., holdfast.Client]


@pytest.mark.parametrize("name", ["k", "path/k"])
def test_max_hold_of_a_grant_that_was_passed_on_counts_from_the_release_and_not_from_the_look(
    url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections = Connections(parse_address(urls.parse(url)), ThreadSockets(), 1, Checked())
    table = PostgresTable(connections, Ledger(), nobody)

    def ask(command: cmd.Command) -> Any:
        return run(table.call(command, clock.now() + 30))

    ask(cmd.Open(Session("s", 60.0, 0.0)))
    first, second = (
        Claim(f"s-{number}", "s", f"s/{number}", "h.lock", name, max_hold=hold)
        for number, hold in ((1, None), (2, 20.0))
    )
    assert isinstance(ask(cmd.Enter(first)), Granted)
    assert isinstance(ask(cmd.Enter(second)), Place)
    ask(cmd.Release(first))

    later = clock.now() + 15.0
    monkeypatch.setattr(clock, "now", lambda: later)  # the thread that was granted was slow to wake
    granted = table.ledger.passed_on.take("s-2")
    monkeypatch.undo()

    assert granted is not None
    assert granted.hold_left is not None
    assert granted.hold_left <= 5.0
    connections.close()


def test_taking_turns_leaves_nothing_in_the_clients_memory(connect: Connect) -> None:
    locks = connect(ttl=60)

    def take_turns() -> None:
        for _ in range(5):
            locks.lock("k").acquire(wait=60.0).release()

    threads = [threading.Thread(target=take_turns) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    ledger = locks._core.engine._ledger  # type: ignore[attr-defined]
    assert ledger.queued == set()
    assert ledger.passed_on._grants == {}


def test_a_grant_that_another_client_passed_on_need_not_be_asked_for(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[cmd.Command] = []
    step = PostgresTable._step

    async def counted(table: PostgresTable, command: cmd.Command, call: VerbCall) -> Any:
        if isinstance(command, cmd.Look):
            looks.append(command)
        return await step(table, command, call)

    monkeypatch.setattr(PostgresTable, "_step", counted)
    clients = [connect(ttl=60), connect(ttl=60)]
    held = clients[0].lock("k").acquire()
    for turn in range(1, 5):
        waiter = clients[turn % 2]
        with ThreadPoolExecutor(1) as pool:
            next_one = pool.submit(waiter.lock("k").acquire)
            eventually(lambda: waiter._core.engine._ledger.queued)  # type: ignore[attr-defined]  # noqa: B023
            looks.clear()
            held.release()
            taken = next_one.result(30.0)
        assert taken.token > held.token
        held = taken
    held.release()

    # That the lock is wanted by many is learnt in the first turns.
    assert looks == []


TRAP = """
CREATE FUNCTION {schema}.fail() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'not now' USING ERRCODE = '53200'; END $$;
CREATE TRIGGER fail BEFORE INSERT ON {schema}.claims FOR EACH ROW EXECUTE FUNCTION {schema}.fail();
"""


def test_a_statement_that_failed_when_it_was_first_used_is_prepared_again(
    url: str, connect: Connect, database: psycopg.Connection[Any], schema: str
) -> None:
    locks = connect(url=f"{url}&connections=1&application_name={schema}", ttl=60)
    locks.list()
    database.execute(TRAP.format(schema=schema).encode())
    with pytest.raises(holdfast.EngineUnavailable, match="not now"):
        locks.lock("k").acquire(wait=5.0)
    database.execute(f"DROP TRIGGER fail ON {schema}.claims".encode())
    refused = watch_refusals(database)

    for _ in range(20):
        locks.lock("k").acquire(wait=30.0).release()
    locks.close()  # a connection that ends brings its figures in

    eventually(lambda: database.execute(USED, (schema,)).fetchone() == (0,))
    assert refused() < 5, "the failure itself may be counted late"


USED = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"


def watch_refusals(database: psycopg.Connection[Any]) -> Callable[[], int]:
    """How many transactions the server has rolled back since."""
    sql = "SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()"

    def count() -> int:
        row = database.execute(sql.encode()).fetchone()
        assert row is not None
        return int(row[0])

    before = count()
    return lambda: count() - before
