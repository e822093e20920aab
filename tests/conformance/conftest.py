"""Every test runs once for each engine and each API: `-k sqlite` and `-k aio` select.

Three marks change that. `needs_of_subject("outage")`: on engines only that have this. `any_connection`: also on those
that run the scripts of another engine over connections of another kind. `by_turns`: takes long, so on most engines one
API has its turn (turns.py). With `HOLDFAST_THOROUGH=1` every test runs on everything.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator

import pytest

import holdfast
from tests.conformance.apis import APIS, Api, Front
from tests.conformance.engines import ENGINES, Subject
from tests.conformance.stage import Breaker, Stage, taking_away
from tests.conformance.turns import THOROUGH, take


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Take a test to its engines."""
    if "subject" not in metafunc.fixturenames:
        if "api" in metafunc.fixturenames:
            metafunc.parametrize("api", APIS, ids=lambda api: api.name, indirect=True)
        return
    test = metafunc.definition
    needed = [name for mark in test.iter_markers("needs_of_subject") for name in mark.args]
    everywhere = THOROUGH or test.get_closest_marker("any_connection") is not None
    subjects = [
        subject
        for subject in ENGINES
        if all(getattr(subject, name) for name in needed) and (everywhere or subject.like is None)
    ]
    take(metafunc, subjects)


@pytest.fixture
def subject(request: pytest.FixtureRequest) -> Subject:
    """The engine under test."""
    found: Subject = request.param
    return found


@pytest.fixture
def url(subject: Subject, fresh_url: Callable[[Subject], str]) -> str:
    """Where nobody has been before."""
    return fresh_url(subject)


@pytest.fixture
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


@pytest.fixture
def breaker(subject: Subject, url: str) -> Iterator[Breaker]:
    """An operator, who breaks locks from a client of its own, or takes them away as the engine allows."""
    with holdfast.connect(url) as operator:

        def take(name: str) -> None:
            if operator.guarantees.recorded:
                operator.break_lock(name, force=True)
            else:
                taking_away(subject)(url, operator.inspect(name))

        yield take
