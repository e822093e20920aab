"""Every engine that other processes can reach; its variants over TLS and many nodes keep cells in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.conformance.engines import ENGINES, FreshUrl, Subject

VARIANTS = {"rediss", "redis+sentinel", "redis+cluster"}
SUBJECTS = [subject for subject in ENGINES if subject.name not in VARIANTS]


@pytest.fixture(scope="session")
def fresh_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Subject], str]]:
    """Makes URLs. Each engine is started when a test first asks for it, and once a run."""
    started: dict[str, FreshUrl] = {}
    with ExitStack() as stack:

        def make(subject: Subject) -> str:
            if subject.name not in started:
                folder = tmp_path_factory.mktemp(subject.name)
                started[subject.name] = stack.enter_context(subject.start(folder))
            return started[subject.name]()

        yield make


@pytest.fixture(params=SUBJECTS, ids=lambda subject: subject.name)
def any_url(request: pytest.FixtureRequest, fresh_url: Callable[[Subject], str]) -> str:
    """Where nobody has been before, on every engine."""
    return fresh_url(request.param)


@pytest.fixture(params=[each for each in SUBJECTS if each.across_processes], ids=lambda subject: subject.name)
def url(request: pytest.FixtureRequest, fresh_url: Callable[[Subject], str]) -> str:
    """The same on every engine that other processes can reach."""
    return fresh_url(request.param)
