"""SqlFence over SQLAlchemy: connections and sessions, blocking and asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest
import sqlalchemy
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from holdfast.errors import InvalidRequest, StaleToken
from holdfast.fence import SqlFence
from holdfast.fence.sql_triggers import create_statements
from tests.fence.databases import Postgres, SqlDatabase, Sqlite

FENCE = SqlFence()


@pytest.fixture
def engine(database: SqlDatabase) -> Iterator[Engine]:
    made = create_engine(database.sqlalchemy_url)
    yield made
    made.dispose()


@pytest.fixture(params=["sqlite+aiosqlite", "postgresql+psycopg", "postgresql+asyncpg"])
async def async_engine(request: pytest.FixtureRequest, tmp_path: object) -> AsyncIterator[AsyncEngine]:
    database: SqlDatabase
    if request.param == "sqlite+aiosqlite":
        database = Sqlite(f"{tmp_path}/fence.db")
    else:
        database = Postgres(request.getfixturevalue("postgres_server").url)
    database.create()
    made = create_async_engine(f"{request.param}:{database.sqlalchemy_url.partition(':')[2]}")
    yield made
    await made.dispose()


def test_a_connection_is_fenced(engine: Engine, name: str) -> None:
    with engine.begin() as connection:
        FENCE.check(connection, 18, resource=name)
        FENCE.check(connection, 18, resource=name)

    with pytest.raises(StaleToken) as stale, engine.begin() as connection:
        FENCE.check(connection, 17, resource=name)

    assert stale.value.highest == 18


def test_a_session_is_fenced(engine: Engine, name: str) -> None:
    with Session(engine) as session, session.begin():
        FENCE.check(session, "18;shared", resource=name)
        FENCE.check(session, 18, resource=name, once=True)

    with Session(engine) as session, pytest.raises(StaleToken):
        FENCE.check(session, 18, resource=name, once=True)
    with Session(engine) as session, pytest.raises(StaleToken):
        FENCE.check(session, "17;shared", resource=name)


def test_the_check_is_part_of_the_sessions_transaction(engine: Engine, name: str) -> None:
    with Session(engine) as session:
        FENCE.check(session, 18, resource=name)
        session.rollback()

    with engine.begin() as connection:
        FENCE.check(connection, 17, resource=name)


def test_a_connection_in_autocommit_is_refused(engine: Engine, name: str) -> None:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        with pytest.raises(InvalidRequest, match="begin one first"):
            FENCE.check(connection, 17, resource=name)


def test_an_engine_in_autocommit_is_refused(database: SqlDatabase, name: str) -> None:
    engine = create_engine(database.sqlalchemy_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection, pytest.raises(InvalidRequest, match="begin one first"):
        FENCE.check(connection, 17, resource=name)
    engine.dispose()


def test_a_missing_table_says_how_to_make_it(engine: Engine, name: str) -> None:
    with engine.connect() as connection, pytest.raises(InvalidRequest, match=r"SqlFence\.create"):
        SqlFence("no_such_table").check(connection, 17, resource=name)


def test_a_table_is_created_over_a_connection(engine: Engine, name: str) -> None:
    fence = SqlFence("s" + name.replace(":", "_"))
    with engine.begin() as connection:
        fence.create(connection)

    with engine.begin() as connection:
        fence.check(connection, 17, resource=name)


def test_triggers_see_the_token_of_a_session(engine: Engine, name: str) -> None:
    table = "u" + name.replace(":", "_")
    dialect = {"mariadb": "mysql"}.get(engine.dialect.name, engine.dialect.name)
    with engine.begin() as connection:
        connection.execute(text(f"CREATE TABLE {table} (id INT PRIMARY KEY)"))
        for statement in create_statements(dialect, table, None):  # type: ignore[arg-type]
            connection.exec_driver_sql(statement)

    with Session(engine) as session, session.begin():
        with FENCE.present(session, 18, resource=table):
            session.execute(text(f"INSERT INTO {table} VALUES (1)"))

    with pytest.raises(StaleToken), Session(engine) as session, FENCE.present(session, 17, resource=table):
        session.execute(text(f"INSERT INTO {table} VALUES (2)"))
    with pytest.raises(sqlalchemy.exc.DBAPIError, match="needs a token"), Session(engine) as session:
        session.execute(text(f"INSERT INTO {table} VALUES (2)"))


async def test_an_asyncio_connection_is_fenced(async_engine: AsyncEngine, name: str) -> None:
    async with async_engine.begin() as connection:
        await FENCE.check(connection, 18, resource=name)
        await FENCE.check(connection, "18;shared", resource=name)

    with pytest.raises(StaleToken):
        async with async_engine.begin() as connection:
            await FENCE.check(connection, 17, resource=name)


async def test_an_asyncio_session_is_fenced(async_engine: AsyncEngine, name: str) -> None:
    async with AsyncSession(async_engine) as session, session.begin():
        await FENCE.check(session, 18, resource=name)

    async with AsyncSession(async_engine) as session:
        with pytest.raises(StaleToken):
            await FENCE.check(session, 17, resource=name)


async def test_an_asyncio_engine_in_autocommit_is_refused(async_engine: AsyncEngine, name: str) -> None:
    engine = create_async_engine(async_engine.url, isolation_level="AUTOCOMMIT")
    async with engine.connect() as connection:
        with pytest.raises(InvalidRequest, match="begin one first"):
            await FENCE.check(connection, 17, resource=name)
    await engine.dispose()


async def test_an_asyncio_connection_in_autocommit_is_refused(async_engine: AsyncEngine, name: str) -> None:
    async with async_engine.connect() as connection:
        await connection.execution_options(isolation_level="AUTOCOMMIT")
        with pytest.raises(InvalidRequest, match="begin one first"):
            await FENCE.check(connection, 17, resource=name)


async def test_triggers_see_the_token_of_an_asyncio_session(async_engine: AsyncEngine, name: str) -> None:
    table = "v" + name.replace(":", "_")
    async with async_engine.begin() as connection:
        await connection.execute(text(f"CREATE TABLE {table} (id INT PRIMARY KEY)"))
        for statement in create_statements(async_engine.dialect.name, table, None):  # type: ignore[arg-type]
            await connection.exec_driver_sql(statement)

    async with AsyncSession(async_engine) as session, session.begin():
        async with FENCE.present(session, 18, resource=table):
            await session.execute(text(f"INSERT INTO {table} VALUES (1)"))

    async with AsyncSession(async_engine) as session:
        with pytest.raises(StaleToken):
            async with FENCE.present(session, 17, resource=table):
                await session.execute(text(f"INSERT INTO {table} VALUES (2)"))


async def test_an_asyncio_connection_of_psycopg_is_fenced(postgres_server: object, name: str) -> None:
    database = Postgres(postgres_server.url)  # type: ignore[attr-defined]
    database.create()
    async with await psycopg.AsyncConnection.connect(database.url) as connection:
        await FENCE.check(connection, 18, resource=name)

    async with await psycopg.AsyncConnection.connect(database.url) as connection:
        with pytest.raises(StaleToken):
            await FENCE.check(connection, 17, resource=name)
