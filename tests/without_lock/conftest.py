"""Every engine that other processes can reach; its variants over TLS and many nodes keep cells in the same way.

A test marked `one_recipe` is about the steps of a recipe, which are the same on every engine: it runs on the embedded
engine and on a server, and on all of them in `make marathon`.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from holdfast import Guarantees
from holdfast.core.urls import parse
from holdfast.engines.registry import engine_class
from tests.conformance.engines import ENGINES, Subject


def keeps_cells(subject: Subject) -> bool:
    """What its guarantees say."""
    scheme, _, options = subject.name.partition("?")
    # A lock server's depend on the server.
    promised: Guarantees | None = getattr(engine_class(parse(f"{scheme}://host?{options}")), "guarantees", None)
    return promised is None or promised.cells


SUBJECTS = [subject for subject in ENGINES if subject.like is None and keeps_cells(subject)]
REPRESENTATIVE = ("sqlite", "redis")
THOROUGH = bool(os.environ.get("HOLDFAST_THOROUGH"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Take a test to its engines."""
    if "url" not in metafunc.fixturenames:
        return
    everywhere = THOROUGH or metafunc.definition.get_closest_marker("one_recipe") is None
    subjects = [each for each in SUBJECTS if each.across_processes and (everywhere or each.name in REPRESENTATIVE)]
    metafunc.parametrize("url", subjects, ids=lambda subject: subject.name, indirect=True)


@pytest.fixture(params=SUBJECTS, ids=lambda subject: subject.name)
def any_url(request: pytest.FixtureRequest, fresh_url: Callable[[Subject], str]) -> str:
    """Where nobody has been before, on every engine."""
    return fresh_url(request.param)


@pytest.fixture
def url(request: pytest.FixtureRequest, fresh_url: Callable[[Subject], str]) -> str:
    """The same on engines that other processes can reach."""
    return fresh_url(request.param)
