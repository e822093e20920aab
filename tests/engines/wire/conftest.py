"""Engines that speak over one wire, and a proxy in front of each that makes the network go wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from urllib.parse import urlsplit

import pytest

from holdfast.verify.proxy import Proxy
from tests.conformance.apis import Api, Front
from tests.conformance.engines import ENGINES, Subject
from tests.conformance.stage import Stage
from tests.conformance.turns import take

ON_A_WIRE = [subject for subject in ENGINES if subject.name in ("holdfast", "redis")]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Take a test to the engines on a wire."""
    if "subject" in metafunc.fixturenames:
        take(metafunc, ON_A_WIRE)


@pytest.fixture
def subject(request: pytest.FixtureRequest) -> Subject:
    found: Subject = request.param
    return found


@pytest.fixture
def api(request: pytest.FixtureRequest) -> Api:
    found: Api = request.param
    return found


@pytest.fixture
def url(subject: Subject, fresh_url: Callable[[Subject], str]) -> str:
    """The engine without anything between."""
    return fresh_url(subject)


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    port = urlsplit(url).port
    assert port is not None
    with Proxy("127.0.0.1", port) as proxy:
        yield proxy


@pytest.fixture
async def stage(subject: Subject, api: Api, url: str) -> AsyncIterator[Stage]:
    """Clients with nothing between them and the server."""
    stage = Stage(subject, api, url)
    yield stage
    await stage.end()


@pytest.fixture
def far_url(url: str, proxy: Proxy) -> str:
    """The engine behind the proxy."""
    return url.replace(f":{urlsplit(url).port}", f":{proxy.port}", 1)


@pytest.fixture
async def far_stage(subject: Subject, api: Api, far_url: str, proxy: Proxy) -> AsyncIterator[Stage]:
    """Clients behind the proxy."""
    stage = Stage(subject, api, far_url)
    yield stage
    proxy.heal()
    await stage.end()


@pytest.fixture
async def rival(stage: Stage) -> Front:
    return await stage.client(app="rival")
