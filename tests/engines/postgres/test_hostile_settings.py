"""What another role, or an administrator's settings, could do to a statement's meaning."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast.engines.advisory import keys
from holdfast.engines.postgres import fast, statements
from holdfast.engines.postgres.wire import Statement, literal, prepared
from holdfast.verify.servers.postgres import PostgresServer

Connect = Callable[..., holdfast.Client]
Database = psycopg.Connection[Any]
KEYWORDS = {"any", "as", "coalesce", "extract", "greatest", "least"}
# With several arguments it is syntax too, and always the function of pg_catalog.
KEYWORDS |= {"unnest"}
ALIASES = {"t", "w"}


@pytest.fixture
def trojan(server: PostgresServer, database: Database) -> Iterator[Database]:
    """Functions in `public` that fit the arguments better than PostgreSQL's own; what they record."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE public.stolen (by text)")
        for arguments in (
            "bigint, integer",
            "boolean, text, text",
            "float8, boolean, boolean",
            "float8, boolean, text",
        ):
            connection.execute(
                f"CREATE FUNCTION public.json_build_array({arguments}) RETURNS json LANGUAGE plpgsql AS"
                " $$ BEGIN INSERT INTO public.stolen VALUES ('json_build_array'); RETURN NULL; END $$"
            )
        for argument in ("integer", "bigint", "text"):
            connection.execute(
                f"CREATE FUNCTION public.to_json({argument}) RETURNS json LANGUAGE plpgsql AS"
                " $$ BEGIN INSERT INTO public.stolen VALUES ('to_json'); RETURN pg_catalog.to_json($1); END $$"
            )
        yield connection
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
        connection.execute("GRANT USAGE ON SCHEMA public TO public")


@pytest.mark.parametrize("query", ["?recipe=advisory", "?schema=hostile", "?schema=public"])
def test_a_function_in_a_schema_of_the_search_path_is_never_called(
    server: PostgresServer, trojan: Database, query: str
) -> None:
    with holdfast.connect(server.url + query, ttl=3) as locks, holdfast.connect(server.url + query, ttl=3) as others:
        with locks.lock("k") as grant:
            assert grant.token > 1_000_000
            assert others.lock("k").try_acquire() is None
            assert locks.inspect("k").holders

    assert trojan.execute("SELECT count(*) FROM public.stolen").fetchone() == (0,)


def test_every_function_of_a_prepared_statement_is_postgresqls_own() -> None:
    found = [each for module in (statements, fast) for each in vars(module).values() if isinstance(each, Statement)]
    assert len(found) > 40
    for statement in [*found, *keys.STATEMENTS]:
        sql = re.sub(r"'[^']*'|\$\$.*?\$\$", "", prepared(statement)).partition(" AS ")[2]
        called = set(re.findall(r"(?<![\w.])([a-z_]+)\(", sql))
        assert called <= KEYWORDS | ALIASES, statement.name


@pytest.mark.parametrize("query", ["", "&recipe=advisory"])
def test_settings_of_a_role_change_no_meaning(
    server: PostgresServer, database: Database, schema: str, query: str
) -> None:
    role = f"odd_{schema}"
    database.execute(f"CREATE ROLE {role} LOGIN SUPERUSER")
    odd = {
        "extra_float_digits": "-15", "DateStyle": "German", "TimeZone": "Asia/Tokyo", "IntervalStyle": "iso_8601",
        "transform_null_equals": "on", "bytea_output": "escape", "array_nulls": "off", "row_security": "off",
        "standard_conforming_strings": "off", "default_transaction_isolation": "serializable",
        "default_transaction_read_only": "on", "search_path": "pg_temp, public, pg_catalog",
    }  # fmt: skip
    for setting, value in odd.items():
        value = value if setting == "search_path" else f"'{value}'"
        database.execute(f"ALTER ROLE {role} SET {setting} = {value}")
    there = f"{server.url}?schema={schema}{query}"
    try:
        with holdfast.connect(there, ttl=3) as plain, holdfast.connect(there.replace("holdfast@", f"{role}@")) as locks:
            held = plain.lock("held").acquire()
            with locks.lock("k", note="it's \\ 'odd'") as grant:
                assert plain.lock("k").try_acquire() is None
                assert grant.valid
            assert locks.lock("held").try_acquire() is None
            held.check()
            with plain.lock("k") as later:
                assert later.token > grant.token
            if not query:
                (remaining,) = database.execute(
                    f"SELECT max(expires_at - extract(epoch FROM clock_timestamp())) FROM {schema}.sessions"
                ).fetchone() or (0,)
                assert 0 < remaining <= 10
            held.release()
    finally:
        database.execute(f"DROP OWNED BY {role}")
        database.execute(f"DROP ROLE {role}")


class Word(StrEnum):
    NIGHTLY = "it's nightly"


class Mixed(str):
    def __str__(self) -> str:
        return "something else"


class Seconds(float):
    def __repr__(self) -> str:
        return "Seconds()"


@pytest.mark.parametrize(
    ("value", "sql"), [(Word.NIGHTLY, "'it''s nightly'"), (Mixed("a"), "'a'"), (Seconds(5), "5.0"), (True, "true")]
)
def test_a_subclass_counts_by_its_value(value: object, sql: str) -> None:
    assert literal(value) == sql


def test_a_note_an_app_and_times_may_be_of_subclasses(connect: Connect) -> None:
    locks = connect(ttl=Seconds(3.0), app=Word.NIGHTLY)
    for turn in range(3):  # more often than there are connections
        with locks.lock(f"k{turn}", note=Word.NIGHTLY, max_hold=Seconds(5.0)):
            (holder,) = locks.inspect(f"k{turn}").holders
            assert (holder.app, holder.note) == ("it's nightly", "it's nightly")
