"""The DDL of `holdfast fence ddl`: the database itself refuses, whoever writes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from psycopg.pq import TransactionStatus
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from holdfast.cli.fence import fence as fence_command
from holdfast.errors import InvalidRequest, StaleToken
from holdfast.fence import SqlFence
from holdfast.fence.sql_triggers import create_statements, drop_statements
from holdfast.fence.token import Token
from holdfast.verify.servers.process import find
from tests.fence.databases import SqlDatabase, Sqlite

FENCE = SqlFence()
WRITES = ["INSERT INTO {} VALUES (2, 2)", "UPDATE {} SET amount = amount + 1", "DELETE FROM {}"]


class Fenced:
    """A fenced table with one row."""

    def __init__(self, database: SqlDatabase, table: str) -> None:
        self.database, self.table = database, table

    def write(self, statement: str = WRITES[1], token: Token | None = None) -> None:
        """Write in a transaction of its own, under a token or none."""
        with self.database.transaction() as connection:
            if token is None:
                self.database.execute(connection, statement.format(self.table))
                return
            with FENCE.present(connection, token, resource=self.table):
                self.database.execute(connection, statement.format(self.table))

    def rows(self) -> list[tuple[Any, ...]]:
        with self.database.transaction() as connection:
            return self.database.execute(connection, f"SELECT id, amount FROM {self.table} ORDER BY id")


@pytest.fixture
def fenced(database: SqlDatabase, name: str) -> Iterator[Fenced]:
    table = "t" + name.replace(":", "_")
    with database.transaction() as connection:
        database.execute(connection, f"CREATE TABLE {table} (id INT PRIMARY KEY, amount INT)")
        database.execute(connection, f"INSERT INTO {table} VALUES (1, 1)")
        for statement in create_statements(database.dialect, table, None):
            database.execute(connection, statement)
    yield Fenced(database, table)
    with database.transaction() as connection:
        database.execute(connection, f"DROP TABLE {table}")


@pytest.mark.parametrize("statement", WRITES)
def test_a_write_without_a_token_is_refused(fenced: Fenced, statement: str) -> None:
    with pytest.raises(Exception, match=r"needs a token|no such function: holdfast_token"):
        fenced.write(statement)

    assert fenced.rows() == [(1, 1)]


@pytest.mark.parametrize("statement", WRITES)
def test_a_write_with_an_older_token_is_refused_as_stale(fenced: Fenced, statement: str) -> None:
    fenced.write(token=18)

    with pytest.raises(StaleToken) as stale:
        fenced.write(statement, token=17)

    assert (stale.value.presented, stale.value.highest, stale.value.resource) == (17, 18, fenced.table)
    assert fenced.rows() == [(1, 2)]


def test_a_write_with_an_equal_or_higher_token_passes(fenced: Fenced) -> None:
    for token in (17, 17, 18, 2**53 - 1, 2**53 - 1):
        fenced.write(token=token)

    assert fenced.rows() == [(1, 6)]


def test_a_reader_passes_until_a_later_writer_came(fenced: Fenced) -> None:
    fenced.write(token="12;shared")
    fenced.write(token="11;shared")
    fenced.write(token=13)

    with pytest.raises(StaleToken):
        fenced.write(token="12;shared")


def test_the_token_does_not_outlive_the_with(fenced: Fenced) -> None:
    """Else code that forgot it, on the same connection, would pass."""
    database = fenced.database
    with database.transaction() as connection:
        with FENCE.present(connection, 17, resource=fenced.table):
            database.execute(connection, WRITES[1].format(fenced.table))
        with pytest.raises(Exception, match="needs a token"):
            database.execute(connection, WRITES[1].format(fenced.table))


def test_a_token_is_presented_and_taken_away_under_an_open_cursor(fenced: Fenced) -> None:
    """SQLite replaces no function of a connection then."""
    database = fenced.database
    fenced.write(WRITES[0], token=17)
    with database.transaction() as connection:
        cursor = connection.cursor()
        cursor.execute(f"SELECT id FROM {fenced.table}")
        cursor.fetchone()
        for _ in range(2):
            with FENCE.present(connection, 17, resource=fenced.table):
                database.execute(connection, WRITES[1].format(fenced.table))
        with pytest.raises(Exception, match="needs a token"):
            database.execute(connection, WRITES[1].format(fenced.table))
        cursor.close()


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_commit_inside_of_the_with_leaves_no_transaction_behind(fenced: Fenced) -> None:
    database = fenced.database
    with closing(database.connect()) as connection:
        with FENCE.present(connection, 17, resource=fenced.table):
            database.execute(connection, WRITES[1].format(fenced.table))
            connection.commit()

        assert connection.info.transaction_status == TransactionStatus.IDLE

    engine = create_engine(database.sqlalchemy_url)
    with Session(engine) as session:
        with FENCE.present(session, 17, resource=fenced.table):
            session.execute(text(WRITES[1].format(fenced.table)))
            session.commit()

        assert not session.in_transaction()
    engine.dispose()


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_refusal_that_was_dealt_with_inside_of_the_with_is_the_end_of_it(fenced: Fenced) -> None:
    database = fenced.database
    fenced.write(token=18)
    with closing(database.connect()) as connection:
        with FENCE.present(connection, 17, resource=fenced.table):
            with pytest.raises(psycopg.Error, match="is stale"):
                database.execute(connection, WRITES[1].format(fenced.table))


def test_the_trigger_and_the_check_keep_one_fence(fenced: Fenced) -> None:
    with fenced.database.transaction() as connection:
        FENCE.check(connection, 18, resource=fenced.table)

    with pytest.raises(StaleToken):
        fenced.write(token=17)


def test_a_snapshot_from_before_does_not_hide_a_later_holder(fenced: Fenced) -> None:
    database = fenced.database
    fenced.write(token=16)
    with database.transaction() as connection:
        database.execute(connection, f"SELECT * FROM {fenced.table}")
        database.execute(connection, "SELECT * FROM holdfast_fence")
        fenced.write(token=18)

        with pytest.raises(StaleToken), FENCE.present(connection, 17, resource=fenced.table):
            database.execute(connection, WRITES[1].format(fenced.table))


def test_a_conflict_clause_of_the_writer_does_not_lower_the_fence(tmp_path: Any) -> None:
    """In SQLite that of the outer statement replaces those inside of a trigger."""
    database = Sqlite(str(tmp_path / "a.db"))
    fenced = Fenced(database, "accounts")
    with database.transaction() as connection:
        connection.execute("CREATE TABLE accounts (id INTEGER PRIMARY KEY, amount INT)")
        for statement in create_statements("sqlite", "accounts", None):
            connection.execute(statement)

    fenced.write("INSERT INTO {} VALUES (1, 1)", token=18)
    fenced.write("INSERT OR REPLACE INTO {} VALUES (1, 2)", token="19;shared")

    with pytest.raises(StaleToken):
        fenced.write("INSERT OR IGNORE INTO {} VALUES (3, 3)", token=17)


def test_dropped_triggers_refuse_nothing(fenced: Fenced) -> None:
    with fenced.database.transaction() as connection:
        for statement in drop_statements(fenced.database.dialect, fenced.table):
            fenced.database.execute(connection, statement)

    fenced.write()

    assert fenced.rows() == [(1, 2)]


def test_the_ddl_can_be_run_again(fenced: Fenced) -> None:
    with fenced.database.transaction() as connection:
        for statement in create_statements(fenced.database.dialect, fenced.table, None):
            fenced.database.execute(connection, statement)

    fenced.write(token=17)


@pytest.fixture
def elsewhere(database: SqlDatabase, name: str, tmp_path: Any) -> Iterator[tuple[Any, str]]:
    """A connection, and a table in a schema that is not the connection's own."""
    schema = "s" + name.replace(":", "_")
    with closing(database.connect()) as connection:
        if database.dialect == "sqlite":
            connection.execute(f"ATTACH '{tmp_path}/other.db' AS {schema}")
        else:
            database.execute(connection, f"CREATE SCHEMA {schema}")
        database.execute(connection, f"CREATE TABLE {schema}.accounts (id INT PRIMARY KEY)")
        connection.commit()
        yield connection, f"{schema}.accounts"
        connection.rollback()
        if database.dialect != "sqlite":
            cascade = " CASCADE" if database.dialect == "postgresql" else ""
            database.execute(connection, f"DROP SCHEMA {schema}{cascade}")
            connection.commit()


def test_a_table_of_another_schema_is_fenced(database: SqlDatabase, elsewhere: tuple[Any, str]) -> None:
    connection, table = elsewhere
    for statement in create_statements(database.dialect, table, None):
        database.execute(connection, statement)
    fence = FENCE if database.dialect == "postgresql" else SqlFence(f"{table.partition('.')[0]}.holdfast_fence")

    with fence.present(connection, 18, resource=table):
        database.execute(connection, f"INSERT INTO {table} VALUES (1)")
    with pytest.raises(StaleToken) as stale:
        fence.check(connection, 17, resource=table)
    assert stale.value.highest == 18
    connection.commit()
    with pytest.raises(StaleToken), fence.present(connection, 17, resource=table):
        database.execute(connection, f"INSERT INTO {table} VALUES (2)")
    connection.rollback()

    for statement in drop_statements(database.dialect, table):
        database.execute(connection, statement)
    database.execute(connection, f"INSERT INTO {table} VALUES (3)")


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_writer_that_looks_into_other_schemas_meets_the_same_fence(fenced: Fenced, name: str) -> None:
    schema, execute = "p" + name.replace(":", "_"), fenced.database.execute
    fenced.write(token=18)

    with closing(fenced.database.connect()) as connection:
        execute(connection, f"CREATE SCHEMA {schema}")
        execute(connection, f"SET search_path = {schema}, public")
        FENCE.create(connection)
        with pytest.raises(StaleToken), FENCE.present(connection, 17, resource=fenced.table):
            execute(connection, WRITES[1].format(fenced.table))


@pytest.mark.parametrize("fence_table", ["main.tokens", "tokens"])
def test_sqlites_fence_may_be_named_with_its_schema(tmp_path: Any, fence_table: str) -> None:
    database, fence = Sqlite(str(tmp_path / "a.db")), SqlFence(fence_table)
    with database.transaction() as connection:
        connection.execute("CREATE TABLE accounts (id INTEGER PRIMARY KEY)")
        for statement in create_statements("sqlite", "accounts", None, fence_table):
            connection.execute(statement)
        with fence.present(connection, 17, resource="accounts"):
            connection.execute("INSERT INTO accounts VALUES (1)")

    with pytest.raises(InvalidRequest, match="their own database"):
        create_statements("sqlite", "main.accounts", None, "temp.tokens")


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_truncate_is_a_write_in_postgresql(fenced: Fenced) -> None:
    with pytest.raises(Exception, match="needs a token"):
        fenced.write("TRUNCATE {}")


def ddl(*options: str) -> str:
    done = CliRunner().invoke(fence_command, ["ddl", *options])
    assert done.exit_code == 0, done.output
    return done.output


def test_what_the_command_prints_is_read_by_psql(postgres_server: Any) -> None:
    command = [find("psql"), postgres_server.url, "-v", "ON_ERROR_STOP=1", "-q"]
    options = ["--dialect", "postgresql", "--table", "public.by_psql", "--resource", "it's mine"]

    for script in ("CREATE TABLE by_psql (id int)", ddl(*options)):
        subprocess.run(command, input=script, text=True, check=True, capture_output=True)
    refused = subprocess.run(command, input="INSERT INTO by_psql VALUES (1)", text=True, capture_output=True)
    assert "needs a token" in refused.stderr

    for script in (ddl(*options, "--drop"), "INSERT INTO by_psql VALUES (1)"):
        subprocess.run(command, input=script, text=True, check=True, capture_output=True)


def test_what_the_command_prints_is_read_by_the_mariadb_client(mariadb_server: Any) -> None:
    settings = mariadb_server.settings
    command = [
        find("mariadb"), "--no-defaults", "-h", settings["host"], "-P", str(settings["port"]),
        "-u", settings["user"], f"-p{settings['password']}", settings["database"],
    ]  # fmt: skip
    options = ["--dialect", "mariadb", "--table", "by_client"]

    for script in ("CREATE TABLE by_client (id int)", ddl(*options)):
        subprocess.run(command, input=script, text=True, check=True, capture_output=True)
    refused = subprocess.run(command, input="INSERT INTO by_client VALUES (1)", text=True, capture_output=True)
    assert "needs a token" in refused.stderr

    for script in (ddl(*options, "--drop"), "INSERT INTO by_client VALUES (1)"):
        subprocess.run(command, input=script, text=True, check=True, capture_output=True)


def test_what_the_command_prints_is_read_by_sqlite(tmp_path: Any) -> None:
    with Sqlite(str(tmp_path / "a.db")).transaction() as connection:
        connection.execute("CREATE TABLE accounts (id INTEGER)")
        connection.executescript(ddl("--dialect", "sqlite", "--table", "accounts"))
        with pytest.raises(Exception, match="no such function: holdfast_token"):
            connection.execute("INSERT INTO accounts VALUES (1)")


def test_the_command_prints_json_when_asked() -> None:
    told = json.loads(ddl("--dialect", "sqlite", "--table", "accounts", "--json"))

    assert told["statements"] == create_statements("sqlite", "accounts", None)


def test_a_hostile_table_name_is_refused_by_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.cli.main", "fence", "ddl", "--dialect", "sqlite", "--table", "a; DROP"],
        capture_output=True,
        text=True,
    )

    assert done.returncode == 2
    assert "a table is named by letters" in done.stderr


def test_an_asyncio_connection_in_a_plain_with_is_refused() -> None:
    class AsyncConnection:
        async def __aenter__(self) -> None: ...

    AsyncConnection.__module__ = "aiosqlite"

    with pytest.raises(InvalidRequest, match="async with"):
        with FENCE.present(AsyncConnection(), 17, resource="x"):
            pass


@pytest.mark.parametrize("temporary", [False, True])
@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_role_cannot_bring_a_fence_of_its_own(fenced: Fenced, postgres_server: Any, temporary: bool) -> None:
    role, execute = f"r{fenced.table}{temporary}".lower(), fenced.database.execute
    with fenced.database.transaction() as connection:
        execute(connection, f"CREATE ROLE {role} LOGIN")
        execute(connection, f"CREATE SCHEMA {role} AUTHORIZATION {role}")  # it is first in the role's search path
        execute(connection, f"GRANT ALL ON {fenced.table}, holdfast_fence TO {role}")
    fenced.write(token=100)
    try:
        with psycopg.connect(postgres_server.url.replace("holdfast@", f"{role}@")) as connection:
            if temporary:
                connection.execute("CREATE TEMP TABLE holdfast_fence (resource text PRIMARY KEY, token bigint)")
            else:
                FENCE.create(connection)
            connection.commit()
            connection.execute("SET LOCAL holdfast.token = '50'")
            with pytest.raises(psycopg.Error, match=r"token 50 is stale .*: 100 was seen"):
                connection.execute(f"UPDATE {fenced.table} SET amount = 66")
    finally:
        with fenced.database.transaction() as connection:
            execute(connection, f"DROP OWNED BY {role} CASCADE")
            execute(connection, f"DROP ROLE {role}")


@pytest.mark.parametrize("kind", ["inheritance", "partition of a fenced table", "fenced partition"])
@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_write_that_reaches_the_rows_through_another_table_needs_a_token(
    database: SqlDatabase, name: str, kind: str
) -> None:
    parent, child = f"p{name}".replace(":", "_"), f"c{name}".replace(":", "_")
    by = "" if kind == "inheritance" else " PARTITION BY LIST (id)"
    of = f"() INHERITS ({parent})" if kind == "inheritance" else f"PARTITION OF {parent} FOR VALUES IN (1)"
    fenced, other = (parent, child) if kind == "partition of a fenced table" else (child, parent)
    with database.transaction() as connection:
        database.execute(connection, f"CREATE TABLE {parent} (id int, amount int){by}")
        database.execute(connection, f"CREATE TABLE {child} {of}")
        database.execute(connection, f"INSERT INTO {child} VALUES (1, 1), (1, 1)")
        for statement in [*create_statements("postgresql", fenced, None)] * 2:
            database.execute(connection, statement)
    table = Fenced(database, fenced)
    for statement in ("UPDATE {} SET amount = 2", "DELETE FROM {}"):
        with pytest.raises(psycopg.Error, match="needs a token"), database.transaction() as connection:
            database.execute(connection, statement.format(other))
    table.write("UPDATE {} SET amount = 3", token=18)
    for token, said in (("17", "is stale"), ("", "needs a token")):
        update = f"SET LOCAL holdfast.token = '{token}'; UPDATE {other} SET amount = 2"
        with pytest.raises(psycopg.Error, match=said), database.transaction() as connection:
            database.execute(connection, update)
    with database.transaction() as connection:
        database.execute(connection, "SET LOCAL holdfast.token = '19'")
        database.execute(connection, f"UPDATE {other} SET amount = 4")
        # What passed under one token says nothing about another.
        database.execute(connection, "SET LOCAL holdfast.token = '18'")
        with pytest.raises(psycopg.Error, match="19 was seen"):
            database.execute(connection, f"UPDATE {other} SET amount = 5")
        connection.rollback()
        for statement in drop_statements("postgresql", fenced):
            database.execute(connection, statement)
        database.execute(connection, f"UPDATE {other} SET amount = 6")
        database.execute(connection, f"DROP TABLE {parent} CASCADE")


HOSTILE = ["$fence$; DROP TABLE x; --", "$fence$fence1$ $fence2$", "it's \\'; DROP", "@fence_table@ '||'", "100% :x"]


@pytest.mark.parametrize("key", HOSTILE)
def test_a_resource_key_is_text_and_nothing_else(database: SqlDatabase, name: str, key: str) -> None:
    table, resource = "h" + name.replace(":", "_"), f"{key} {name}"
    with database.transaction() as connection:
        database.execute(connection, f"CREATE TABLE {table} (id INT PRIMARY KEY)")
        for statement in create_statements(database.dialect, table, resource):
            database.execute(connection, statement)
        with FENCE.present(connection, 18, resource=resource):
            database.execute(connection, f"INSERT INTO {table} VALUES (1)")
    with database.transaction() as connection:
        with pytest.raises(StaleToken):
            FENCE.check(connection, 17, resource=resource)
        database.execute(connection, f"DROP TABLE {table}")


def test_the_ddl_run_again_with_another_key_has_the_new_one(fenced: Fenced, name: str) -> None:
    with fenced.database.transaction() as connection:
        for statement in create_statements(fenced.database.dialect, fenced.table, f"other {name}"):
            fenced.database.execute(connection, statement)
    fenced.write(token=18)

    with fenced.database.transaction() as connection:
        FENCE.check(connection, 17, resource=fenced.table)
        with pytest.raises(StaleToken):
            FENCE.check(connection, 17, resource=f"other {name}")
