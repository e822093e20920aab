"""All measures of a run, in order."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast.bench.handoff import ProcessHandOff, ThreadHandOff
from holdfast.bench.holding import Holding
from holdfast.bench.measure import Measure, Result, compare
from holdfast.bench.pairs import TaskPairs, ThreadPairs
from holdfast.bench.plan import Plan
from holdfast.bench.sleeping import SleepingHandOff
from holdfast.bench.subject import OURS, Where, find
from holdfast.bench.table import TableTransitions
from holdfast.core import urls

MEASURES: tuple[Measure, ...] = (
    TableTransitions(),
    ThreadPairs(1),
    ThreadPairs(16),
    TaskPairs(1),
    TaskPairs(64),
    ThreadHandOff(8),
    ThreadHandOff(64),
    ProcessHandOff(8, 4),
    ProcessHandOff(64, 4),
    SleepingHandOff(),
    Holding(1_000),
    Holding(10_000),
)
GROUPS = tuple(dict.fromkeys(measure.group for measure in MEASURES))

TEMPORARY = "sqlite:///(a temporary file)"

Progress = Callable[[str], None]
"""Told what is being measured now."""


@dataclass(frozen=True, slots=True)
class Run:
    """What was measured, how, and what came of it."""

    url: str
    peer: str | None
    ttl: float
    plan: Plan
    results: tuple[Result, ...]


@contextmanager
def somewhere(url: str | None, ttl: float) -> Iterator[Where]:
    """Where a run keeps its locks: a namespace and a folder of its own, removed at the end.

    Without a URL that is a SQLite file in the folder, never the one that the user works with.
    """
    beside = None
    if url is not None and (parsed := urls.parse(url)).scheme == "sqlite":
        # A peer that keeps files has to keep them on the same file system, or disks are compared.
        parent = Path(parsed.path).absolute().parent
        beside = parent if os.access(parent, os.W_OK) else None
    namespace = f"bench-{secrets.token_hex(4)}"
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=beside) as folder:
        yield Where(url or f"sqlite:///{Path(folder) / 'locks.db'}", folder, namespace, ttl)


def run(
    url: str | None,
    peer: str | None,
    ttl: float,
    plan: Plan,
    only: Collection[str] = (),
    measures: Collection[Measure] = MEASURES,
    progress: Progress = lambda text: None,
) -> Run:
    """Run every measure whose group was asked for, all of them if none was, and that fits the engine."""
    with somewhere(url, ttl) as where:
        ours = find(OURS, where)
        other = None if peer is None else find(peer, where)
        results = []
        for measure in measures:
            if (not only or measure.group in only) and measure.fits(ours):
                progress(f"{measure.group}: {measure.case}")
                results.append(compare(measure, ours, other, plan))
    # A URL is shown without its secrets.
    return Run(str(urls.parse(url)) if url else TEMPORARY, peer, ttl, plan, tuple(results))
