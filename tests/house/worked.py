"""Tests that are run by test_workers.py, in a run of their own, and by nobody else."""

from __future__ import annotations

import os
import time

import pytest

from tests.conformance.engines import ENGINES, Subject


@pytest.mark.parametrize("subject", [each for each in ENGINES if each.name in ("memory", "sqlite")])
@pytest.mark.parametrize("turn", range(3))
def test_of_an_engine(subject: Subject, turn: int) -> None:
    print(f"ran {subject.name} in {os.getpid()}")
    time.sleep(0.1)
    assert turn < 0


def test_that_ends_its_process() -> None:
    os._exit(1)


@pytest.mark.parametrize("number", range(4))
def test_that_passes(number: int) -> None:
    assert number >= 0
