"""SqlFence on real databases: SQLite, PostgreSQL and MariaDB, through their drivers."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing, nullcontext
from typing import Any

import psycopg
import pymysql
import pytest

from holdfast.errors import InvalidRequest, StaleToken
from holdfast.fence import OldSnapshot, SqlFence
from holdfast.fence.sql_triggers import create_statements
from holdfast.fence.token import Token
from holdfast.verify.servers.process import wait_until
from tests.fence.databases import MariaDb, Postgres, SqlDatabase, Sqlite

FENCE = SqlFence()
LARGEST = 2**53 - 1


def check(database: SqlDatabase, token: Token, resource: str, *, once: bool = False) -> None:
    """Check in a transaction of its own."""
    with database.transaction() as connection:
        FENCE.check(connection, token, resource=resource, once=once)


def test_a_lower_token_is_stale_and_says_what_was_seen(database: SqlDatabase, name: str) -> None:
    check(database, 18, name)

    with pytest.raises(StaleToken) as stale:
        check(database, 17, name)

    assert (stale.value.presented, stale.value.highest, stale.value.resource) == (17, 18, name)


def test_an_equal_token_passes_many_times(database: SqlDatabase, name: str) -> None:
    for _ in range(3):
        check(database, 17, name)


def test_once_refuses_an_equal_token_and_takes_a_higher_one(database: SqlDatabase, name: str) -> None:
    check(database, 17, name, once=True)

    with pytest.raises(StaleToken) as stale:
        check(database, 17, name, once=True)

    assert stale.value.highest == 17
    check(database, 18, name, once=True)


def test_a_reader_makes_no_other_reader_stale(database: SqlDatabase, name: str) -> None:
    check(database, 10, name)

    check(database, "13;shared", name)
    check(database, "12;shared", name)
    check(database, 11, name)


def test_a_reader_is_stale_after_a_later_writer(database: SqlDatabase, name: str) -> None:
    check(database, "12;shared", name)
    check(database, 13, name)

    with pytest.raises(StaleToken) as stale:
        check(database, "12;shared", name)

    assert stale.value.highest == 13


@pytest.mark.parametrize("first", [1, LARGEST - 1])
def test_tokens_are_exact_to_the_last(database: SqlDatabase, name: str, first: int) -> None:
    check(database, first, name)
    check(database, LARGEST, name)

    with pytest.raises(StaleToken) as stale:
        check(database, LARGEST - 1, name)

    assert stale.value.highest == LARGEST


HOSTILE = [
    "'; DROP TABLE holdfast_fence; --",
    'a"b`c\\d%s%%(resource)s:token',
    "ünïcødé/日本語/🔒",
    "x" * 512,
    "Ab",
    "ab",
    "ab ",
    "straße",
    "strasse",
    "é",
    "e\u0301",
]


def test_no_two_hostile_names_share_a_fence(database: SqlDatabase) -> None:
    for token, hostile in enumerate(HOSTILE, start=100):
        check(database, LARGEST - 100 - token, hostile, once=True)

    with pytest.raises(StaleToken):
        check(database, 1, HOSTILE[0])


def test_what_is_rolled_back_leaves_no_trace(database: SqlDatabase, name: str) -> None:
    with closing(database.connect()) as connection:
        FENCE.check(connection, 18, resource=name)
        connection.rollback()

    check(database, 17, name)


def test_a_cursor_is_as_good_as_its_connection(database: SqlDatabase, name: str) -> None:
    with database.transaction() as connection:
        FENCE.check(connection.cursor(), 18, resource=name)

    with pytest.raises(StaleToken):
        check(database, 17, name)


def test_a_missing_table_says_how_to_make_it(database: SqlDatabase, name: str) -> None:
    with database.transaction() as connection, pytest.raises(InvalidRequest, match=r"SqlFence\.create"):
        SqlFence("no_such_table").check(connection, 17, resource=name)


def test_a_table_of_ones_own_is_created_by_many_at_once(database: SqlDatabase, name: str) -> None:
    fence = SqlFence("f" + name.replace(":", "_"))

    def create() -> None:
        with database.transaction() as connection:
            fence.create(connection)

    together([create] * 8)

    with database.transaction() as connection:
        fence.check(connection, 17, resource=name)


@pytest.mark.parametrize("table", ["", "a b", 'a"b', "a;b", "a.b.c", "1a", "ä"])
def test_a_table_name_that_is_not_plain_is_refused(table: str) -> None:
    with pytest.raises(InvalidRequest):
        SqlFence(table)


def test_an_unknown_connection_is_refused_with_what_is_known() -> None:
    with pytest.raises(InvalidRequest, match="psycopg"):
        FENCE.check(object(), 17, resource="x")


def together(works: list[Callable[[], None]]) -> None:
    """Run at the same moment; the first error comes out."""
    start, errors = threading.Barrier(len(works)), list[BaseException]()

    def run(work: Callable[[], None]) -> None:
        start.wait()
        try:
            work()
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    threading.excepthook, before = lambda _: None, threading.excepthook
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        threading.excepthook = before
    if errors:
        raise errors[0]


def test_of_many_first_uses_at_once_none_below_the_highest_passes_after_it(database: SqlDatabase, name: str) -> None:
    with database.transaction() as connection:
        database.execute(connection, "DROP TABLE IF EXISTS arrivals")
        kind = {"sqlite": "INTEGER PRIMARY KEY", "postgresql": "SERIAL", "mysql": "INT AUTO_INCREMENT PRIMARY KEY"}
        database.execute(connection, f"CREATE TABLE arrivals (n {kind[database.dialect]}, token BIGINT)")

    refused: list[tuple[int, int]] = []

    def arrive(token: int) -> None:
        try:
            with database.transaction() as connection:
                FENCE.check(connection, token, resource=name)
                database.execute(connection, "INSERT INTO arrivals (token) VALUES (?)", token)
        except StaleToken as stale:
            refused.append((stale.presented, stale.highest))

    together([lambda token=token: arrive(token) for token in range(1, 13)])  # type: ignore[misc]

    with database.transaction() as connection:
        passed = [token for (token,) in database.execute(connection, "SELECT token FROM arrivals ORDER BY n")]
    assert passed == sorted(passed)
    assert passed[-1] == 12
    assert all(presented < highest for presented, highest in refused)
    assert len(passed) + len(refused) == 12


@pytest.mark.parametrize("order", [(17, 18), (18, 17)])
def test_of_two_transactions_at_once_the_second_waits_and_is_judged_by_the_first(
    database: SqlDatabase, name: str, order: tuple[int, int]
) -> None:
    """Under the default isolation level of each database."""
    first, second = order
    outcome: list[str] = []

    def later() -> None:
        try:
            check(database, second, name)
            outcome.append("passed")
        except StaleToken:
            outcome.append("stale")

    check(database, 1, name)
    with database.transaction() as connection:
        FENCE.check(connection, first, resource=name)
        thread = threading.Thread(target=later)
        thread.start()
        thread.join(0.2)
        assert outcome == []
    thread.join(30)

    assert outcome == ["passed" if second > first else "stale"]


def test_a_snapshot_from_before_does_not_hide_a_later_holder(database: SqlDatabase, name: str) -> None:
    """MariaDB reads at REPEATABLE READ unless told otherwise: a plain SELECT would see the past."""
    check(database, 16, name)
    with database.transaction() as connection:
        database.execute(connection, "SELECT token FROM holdfast_fence WHERE token = 16")
        check(database, 18, name)

        with pytest.raises(StaleToken) as stale:
            FENCE.check(connection, 17, resource=name)

    assert stale.value.highest == 18


def autocommitting(database: SqlDatabase) -> Any:
    if isinstance(database, Sqlite):
        return sqlite3.connect(database.path, isolation_level=None)
    if isinstance(database, Postgres):
        return psycopg.connect(database.url, autocommit=True)
    assert isinstance(database, MariaDb)
    return pymysql.connect(**database.settings, autocommit=True)


def test_a_check_outside_of_a_transaction_is_refused(database: SqlDatabase, name: str) -> None:
    with closing(autocommitting(database)) as connection:
        with pytest.raises(InvalidRequest, match="begin one first"):
            FENCE.check(connection, 17, resource=name)


def test_a_transaction_begun_by_hand_is_one(database: SqlDatabase, name: str) -> None:
    with closing(autocommitting(database)) as connection:
        database.execute(connection, "BEGIN")
        FENCE.check(connection, 18, resource=name)
        database.execute(connection, "COMMIT")

    with pytest.raises(StaleToken):
        check(database, 17, name)


def test_readers_share_the_row_in_postgresql(postgres_server: Any, name: str) -> None:
    database = Postgres(postgres_server.url)
    database.create()
    with database.transaction() as one, database.transaction() as other:
        one.execute("SET LOCAL lock_timeout = '5s'")
        other.execute("SET LOCAL lock_timeout = '5s'")
        FENCE.check(one, "12;shared", resource="first-use-" + name)
        one.commit()
        FENCE.check(one, "12;shared", resource="first-use-" + name)
        FENCE.check(other, "13;shared", resource="first-use-" + name)


@pytest.mark.parametrize("seen", [True, False], ids=["a name that was seen", "a new name"])
def test_a_writer_waits_for_a_reader_that_was_let_through(database: SqlDatabase, name: str, seen: bool) -> None:
    passed = threading.Event()
    if seen:
        check(database, 1, name)

    def write() -> None:
        check(database, 18, name)
        passed.set()

    with database.transaction() as connection:
        FENCE.check(connection, "17;shared", resource=name)
        thread = threading.Thread(target=write)
        thread.start()
        assert not passed.wait(0.2)
    wait_until(passed.is_set, 30, "the writer passing")
    thread.join()


@pytest.mark.parametrize("token", [17, 18, 19])
@pytest.mark.parametrize("guard", ["check", "trigger"])
@pytest.mark.parametrize("database", ["mariadb"], indirect=True)
def test_where_mariadb_isolates_snapshots_a_stale_token_is_stale_and_another_is_to_run_again(
    database: SqlDatabase, name: str, token: int, guard: str
) -> None:
    table = "i" + name.replace(":", "_")
    check(database, 16, name)
    with closing(database.connect()) as connection:
        database.execute(connection, f"CREATE TABLE {table} (id INT PRIMARY KEY)")
        for statement in create_statements("mysql", table, name) if guard == "trigger" else ():
            database.execute(connection, statement)
        database.execute(connection, "SET innodb_snapshot_isolation = ON")
        connection.commit()

        def write() -> None:
            if guard == "check":
                FENCE.check(connection, token, resource=name)
                return
            with FENCE.present(connection, token, resource=name):
                database.execute(connection, f"INSERT INTO {table} VALUES ({token})")

        database.execute(connection, "SELECT token FROM holdfast_fence")
        check(database, 18, name)
        expected = StaleToken if token < 18 else OldSnapshot if guard == "check" else pymysql.err.OperationalError
        with pytest.raises(expected) as refused:
            write()
        if isinstance(refused.value, StaleToken | OldSnapshot):
            assert (refused.value.presented, refused.value.highest) == (token, 18)
        connection.rollback()

        if token >= 18:
            write()
            connection.commit()
        database.execute(connection, f"DROP TABLE {table}")


@pytest.mark.parametrize("begun", [False, True])
def test_autocommit_in_a_pipeline_of_psycopg_is_refused_unless_a_transaction_has_begun(
    postgres_server: Any, name: str, begun: bool
) -> None:
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        FENCE.create(connection)
        with connection.pipeline(), connection.transaction() if begun else nullcontext():
            connection.execute("SELECT 1")
            with nullcontext() if begun else pytest.raises(InvalidRequest, match="begin one first"):
                FENCE.check(connection, 17, resource=name)


@pytest.mark.parametrize("begun", [False, True])
async def test_the_same_for_an_asyncio_connection(postgres_server: Any, name: str, begun: bool) -> None:
    async with await psycopg.AsyncConnection.connect(postgres_server.url, autocommit=True) as connection:
        await FENCE.create(connection)
        async with connection.pipeline(), connection.transaction() if begun else nullcontext():
            await connection.execute("SELECT 1")
            with nullcontext() if begun else pytest.raises(InvalidRequest, match="begin one first"):
                await FENCE.check(connection, 17, resource=name)
