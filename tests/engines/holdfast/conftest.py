"""A lock server of the test's own, that may be harmed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.conformance.apis import APIS, Api, Front
from tests.conformance.engines import ENGINES
from tests.conformance.stage import Stage
from tests.servers.lock_server import LockServer

SUBJECT = next(subject for subject in ENGINES if subject.name == "holdfast")


@pytest.fixture
def server() -> Iterator[LockServer]:
    with LockServer(store="sqlite:///locks.db") as server:
        yield server


@pytest.fixture(params=APIS, ids=lambda api: api.name)
def api(request: pytest.FixtureRequest) -> Api:
    found: Api = request.param
    return found


@pytest.fixture
async def stage(api: Api, server: LockServer) -> AsyncIterator[Stage]:
    stage = Stage(SUBJECT, api, server.url)
    yield stage
    await stage.end()


@pytest.fixture
async def locks(stage: Stage) -> Front:
    return await stage.client(ttl=5.0)


@pytest.fixture
async def rival(stage: Stage) -> Front:
    return await stage.client(ttl=5.0, app="rival")
