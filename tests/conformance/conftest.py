"""Every test runs once for each engine and each API: `-k sqlite` and `-k aio` select."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from tests.conformance.apis import APIS, Api, Front
from tests.conformance.engines import ENGINES, Subject
from tests.conformance.stage import Stage


@pytest.fixture(params=ENGINES, ids=lambda subject: subject.name)
def subject(request: pytest.FixtureRequest) -> Subject:
    """The engine under test."""
    found: Subject = request.param
    return found


@pytest.fixture
def url(subject: Subject, fresh_url: Callable[[Subject], str]) -> str:
    """Where nobody has been before."""
    return fresh_url(subject)


@pytest.fixture(params=APIS, ids=lambda api: api.name)
def api(request: pytest.FixtureRequest) -> Api:
    """The API under test."""
    found: Api = request.param
    return found


@pytest.fixture
async def stage(subject: Subject, api: Api, url: str) -> AsyncIterator[Stage]:
    """Where clients are made."""
    stage = Stage(subject, api, url)
    yield stage
    await stage.end()


@pytest.fixture
async def locks(stage: Stage) -> Front:
    """A client."""
    return await stage.client(app="locks")


@pytest.fixture
async def rival(stage: Stage) -> Front:
    """Another client of the same engine."""
    return await stage.client(app="rival")
