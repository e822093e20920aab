"""Servers that run once for a whole test session. A conftest imports those that it needs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.verify.servers.postgres import QUICK, PostgresServer
from holdfast.verify.servers.redis import RedisServer
from tests.servers.mariadb import MariaDbServer
from tests.servers.moto import MotoServer


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="session")
def redis_cluster() -> Iterator[RedisServer]:
    with RedisServer(cluster=True) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with PostgresServer(QUICK) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariaDbServer]:
    with MariaDbServer() as server:
        yield server


@pytest.fixture(scope="session")
def moto_server() -> Iterator[MotoServer]:
    with MotoServer() as server:
        yield server
