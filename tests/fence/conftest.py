"""Real servers for the fences, and databases that know how to be connected to."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tests.fence.databases import MariaDb, Postgres, SqlDatabase, Sqlite
from tests.servers.fixtures import mariadb_server, moto_server, postgres_server, redis_cluster, redis_server

__all__ = ["mariadb_server", "moto_server", "postgres_server", "redis_cluster", "redis_server"]


@pytest.fixture
def name() -> str:
    """A lock's name that no other test uses."""
    return f"test:{uuid.uuid4().hex}"


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> SqlDatabase:
    """Each of the databases that SqlFence knows, with the fence's table in it."""
    made: SqlDatabase
    if request.param == "sqlite":
        made = Sqlite(str(tmp_path / "fence.db"))
    elif request.param == "postgresql":
        made = Postgres(request.getfixturevalue("postgres_server").url)
    else:
        made = MariaDb(request.getfixturevalue("mariadb_server").settings)
    made.create()
    return made
