"""The flag that records anew, and what a test compares with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.records.record import Record

RECORDED = Path(__file__).parent / "recorded"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", action="store_true", help="write the records anew instead of comparing with them")


@pytest.fixture
def recording(pytestconfig: pytest.Config) -> bool:
    """Whether this run writes the records anew."""
    # The option is known only if pytest was told to run this folder.
    return bool(pytestconfig.getoption("--record", default=False))


@pytest.fixture
def record(recording: bool) -> Callable[[str], Record]:
    """Opens a record by its path under `recorded/`."""
    return lambda path: Record(RECORDED / path, recording)
