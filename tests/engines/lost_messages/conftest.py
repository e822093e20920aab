"""Engines over whose connections messages can be lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from tests.conformance.apis import Api
from tests.conformance.engines import ENGINES, Subject
from tests.conformance.turns import take
from tests.engines.lost_messages.cases import ALL, OPERATIONS, SIDE_BY_SIDE
from tests.engines.lost_messages.scene import Site
from tests.faults.messages import FRAMERS

SCHEMES = (*FRAMERS, "postgresql?recipe=advisory")
OVER_A_CONNECTION = [subject for subject in ENGINES if subject.name in SCHEMES]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "subject" in metafunc.fixturenames:
        take(metafunc, OVER_A_CONNECTION)
    if "operation" in metafunc.fixturenames:
        metafunc.parametrize("operation", OPERATIONS if ALL else [None], ids=lambda one: one.name if one else "sample")


@pytest.fixture
def subject(request: pytest.FixtureRequest) -> Subject:
    found: Subject = request.param
    return found


@pytest.fixture
def api(request: pytest.FixtureRequest) -> Api:
    found: Api = request.param
    return found


@pytest.fixture
async def sites(subject: Subject, api: Api, fresh_url: Callable[[Subject], str]) -> AsyncIterator[list[Site]]:
    """Where scenes take place, as many as there are side by side."""
    url = fresh_url(subject)
    sites = list(await asyncio.gather(*(Site.open(subject, api, url) for _ in range(SIDE_BY_SIDE))))
    yield sites
    await asyncio.gather(*(site.close() for site in sites))
