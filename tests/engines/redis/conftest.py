"""A real Redis."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator

import pytest
import redis as redis_py

from holdfast.verify.servers.redis import MANY_DATABASES, RedisServer
from tests.conformance.apis import APIS, Api, Front
from tests.conformance.engines import ENGINES
from tests.conformance.stage import Stage

_numbers = itertools.count(1)
SUBJECT = next(subject for subject in ENGINES if subject.name == "redis")


@pytest.fixture(scope="session")
def shared_server() -> Iterator[RedisServer]:
    """One server for all tests that do not harm it."""
    with RedisServer(*MANY_DATABASES) as server:
        yield server


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A server of the test's own."""
    with RedisServer() as server:
        yield server


@pytest.fixture
def database(shared_server: RedisServer) -> int:
    """Where nobody has been before."""
    return next(_numbers)


@pytest.fixture
def url(shared_server: RedisServer, database: int) -> str:
    """The database without anything between."""
    return f"redis://127.0.0.1:{shared_server.port}/{database}"


@pytest.fixture
def redis(shared_server: RedisServer, database: int) -> Iterator[redis_py.Redis]:
    """Another client, to look at the database with."""
    with redis_py.Redis(port=shared_server.port, db=database) as client:
        yield client


@pytest.fixture(params=APIS, ids=lambda api: api.name)
def api(request: pytest.FixtureRequest) -> Api:
    found: Api = request.param
    return found


@pytest.fixture
async def stage(api: Api, url: str) -> AsyncIterator[Stage]:
    """Clients with nothing between them and the server."""
    stage = Stage(SUBJECT, api, url)
    yield stage
    await stage.end()


@pytest.fixture
async def rival(stage: Stage) -> Front:
    return await stage.client(app="rival")
