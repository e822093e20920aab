"""Which engines and APIs a test is taken to, and whose turn it is if it takes long.

A test that waits for a ttl or for an outage costs a second on each engine and API, whoever wins. What it shows is in
the recipe (written once for both APIs) and in the engine's steps, so `make test` takes a test that is marked `by_turns`
to every engine and there to one API, half of these tests to each; on the embedded engine to both. Of engines that run
the scripts of another one, one has its turn, and whatever runs there runs through one API. Which one depends on the
names alone: it is the same in every run.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar
from zlib import crc32

import pytest

from tests.conformance.apis import APIS, Api
from tests.conformance.engines import Subject

THOROUGH = bool(os.environ.get("HOLDFAST_THOROUGH"))
ALWAYS_BOTH = "sqlite"

T = TypeVar("T")


def take(metafunc: pytest.Metafunc, subjects: Sequence[Subject]) -> None:
    """Take a test to these engines, and through the APIs if it is written for both."""
    test = metafunc.definition
    by_turns = not THOROUGH and test.get_closest_marker("by_turns") is not None
    if by_turns:
        subjects = subjects_by_turns(test.name, subjects)
    if "api" not in metafunc.fixturenames:
        metafunc.parametrize("subject", subjects, ids=lambda subject: subject.name, indirect=True)
        return
    pairs = [
        (each, api)
        for each in subjects
        for api in (apis_by_turns(test.name, each) if by_turns or (each.like and not THOROUGH) else APIS)
    ]
    metafunc.parametrize("subject, api", pairs, ids=[f"{each.name}-{api.name}" for each, api in pairs], indirect=True)


def subjects_by_turns(test: str, subjects: Sequence[Subject]) -> list[Subject]:
    """All that are engines of their own, and one for each engine that others are like."""
    own = [subject for subject in subjects if subject.like is None]
    models = dict.fromkeys(subject.like for subject in subjects if subject.like is not None)
    return own + [_one(test, [subject for subject in subjects if subject.like == model]) for model in models]


def apis_by_turns(test: str, subject: Subject) -> Sequence[Api]:
    """The API whose turn it is on an engine."""
    return APIS if subject.name == ALWAYS_BOTH else [_one(f"{test} on {subject.name}", APIS)]


def _one(key: str, of: Sequence[T]) -> T:
    return of[crc32(key.encode()) % len(of)]
