"""The conformance suite on three servers that are one: its own tests, with another subject.

In `make test` those of a few files stand for all of them; `make torture` runs them all.
"""

from __future__ import annotations

import importlib
import os
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import conftest
from tests.conformance.engines import Subject
from tests.servers.lock_clusters import SHORTEST_TTL, lock_cluster_stands_still, lock_clusters

CLUSTER = Subject(
    "holdfast+etcd",
    lock_clusters,
    across_processes=True,
    outage=lock_cluster_stands_still,
    # No session ends sooner, whatever ttl a test asks for.
    lag=SHORTEST_TTL,
)
FOLDER = Path(conftest.__file__).parent
NOT_OF_AN_ENGINE = {"test_registered", "test_loops"}
EVERY = {path.stem for path in FOLDER.glob("test_*.py")} - NOT_OF_AN_ENGINE
A_FEW = {"test_exclusion", "test_hand_over", "test_line", "test_outage"}
FILES = EVERY if os.environ.get("HOLDFAST_THOROUGH") else A_FEW

api, stage, locks, rival, url = conftest.api, conftest.stage, conftest.locks, conftest.rival, conftest.url


@pytest.fixture
def subject() -> Subject:
    """The engine under test."""
    return CLUSTER


def with_any_subject(test: Callable[..., Any]) -> Callable[..., Any]:
    """The test without the list of engines that it is run for."""
    assert isinstance(test, types.FunctionType)
    made = types.FunctionType(test.__code__, test.__globals__, test.__name__, test.__defaults__, test.__closure__)
    made.__kwdefaults__ = test.__kwdefaults__
    made.__dict__.update(test.__dict__)
    marks = test.__dict__.get("pytestmark", [])
    made.__dict__["pytestmark"] = [mark for mark in marks if mark.args[:1] != ("subject",)]
    return made


def borrowed(file: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The tests of one file, by names that no other file has."""
    module = importlib.import_module(f"tests.conformance.{file}")
    for name, found in vars(module).items():
        if name.startswith("test_"):
            yield f"{file}__{name.removeprefix('test_')}", with_any_subject(found)


globals().update(pair for file in sorted(FILES) for pair in borrowed(file))
