"""The outcome of an operation that makes several requests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors import EngineFailure


@contextmanager
def unknown_from_here() -> Iterator[None]:
    """Requests after one that has changed something: if one of them is "not done", the operation is not "not done"."""
    try:
        yield
    except EngineFailure as error:
        if error.outcome == "unknown":
            raise
        raise EngineFailure(error.engine, error.problem, "unknown") from error
