"""Who may do what."""

from __future__ import annotations

import subprocess
import sys
import traceback
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast import aio
from holdfast.verify.servers.postgres import PostgresServer


@pytest.fixture
def role(database: psycopg.Connection[Any], schema: str) -> Iterator[str]:
    """A role that may connect and nothing else."""
    name = f"app_{schema}"
    database.execute(f"CREATE ROLE {name} LOGIN")
    yield name
    database.execute(f"DROP OWNED BY {name}")
    database.execute(f"DROP ROLE {name}")


@pytest.fixture
def role_url(server: PostgresServer, role: str, schema: str) -> str:
    return f"postgresql://{role}@127.0.0.1:{server.port}/postgres?schema={schema}"


def test_a_role_without_rights_is_told_what_an_administrator_has_to_run(role_url: str, schema: str) -> None:
    with (
        holdfast.connect(role_url) as locks,
        pytest.raises(holdfast.EngineUnavailable, match=f"holdfast postgres ddl --schema {schema}") as refused,
    ):
        locks.lock("k").acquire(wait=1.0)
    assert refused.value.outcome == "not done"


def test_a_role_that_may_not_create_tables_works_after_an_administrator_ran_the_ddl(
    database: psycopg.Connection[Any], role_url: str, role: str, schema: str
) -> None:
    command = [sys.executable, "-m", "holdfast.cli.main", "postgres", "ddl", "--schema", schema, "--role", role]
    ddl = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    database.execute(ddl.encode())

    with holdfast.connect(role_url) as locks, holdfast.connect(role_url) as rival:
        with locks.lock("db", subtree=True), locks.semaphore("s", limit=2):
            assert rival.lock("db/users").try_acquire() is None
        assert rival.cell("c").set("value") > 0
        with rival.lock("db/users"):
            assert locks.lock("db", subtree=True).try_acquire() is None


def test_the_ddl_says_nothing_for_a_bad_schema_name() -> None:
    command = [sys.executable, "-m", "holdfast.cli.main", "postgres", "ddl", "--schema", 'x"; DROP TABLE y; --']
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode != 0
    assert done.stdout == ""


@pytest.mark.parametrize("recipe", ["", "?recipe=advisory"])
async def test_a_role_that_is_refused_is_not_shown(server: PostgresServer, recipe: str) -> None:
    """It is what the URL has before its `@`, and perhaps a password in the wrong place."""
    url = f"postgresql://zqz:zqz@127.0.0.1:{server.port}/postgres{recipe}"
    with holdfast.connect(url) as locks, pytest.raises(holdfast.EngineUnavailable, match="does not exist") as refused:
        locks.lock("k").acquire(wait=1.0)
    async with aio.connect(url) as tasks:
        with pytest.raises(holdfast.EngineUnavailable, match="does not exist") as refused_too:
            await tasks.lock("k").acquire(wait=1.0)

    for error in (refused.value, refused_too.value):
        assert "zqz" not in "".join(traceback.format_exception(error))
