"""Every engine that other processes can reach; its variants over TLS and many nodes keep cells in the same way."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.engines import ENGINES, Subject

SUBJECTS = [subject for subject in ENGINES if subject.like is None and subject.parts is None]


@pytest.fixture(params=SUBJECTS, ids=lambda subject: subject.name)
def any_url(request: pytest.FixtureRequest, fresh_url: Callable[[Subject], str]) -> str:
    """Where nobody has been before, on every engine."""
    return fresh_url(request.param)


@pytest.fixture(params=[each for each in SUBJECTS if each.across_processes], ids=lambda subject: subject.name)
def url(request: pytest.FixtureRequest, fresh_url: Callable[[Subject], str]) -> str:
    """The same on every engine that other processes can reach."""
    return fresh_url(request.param)
