"""The figures of a run for people and for programs."""

from __future__ import annotations

import math
import platform
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from holdfast.bench.measure import Figures, Result
from holdfast.bench.suite import Run

TITLES = {
    "table": "lock table alone",
    "pairs": "uncontended",
    "handoff": "contended hand-off",
    "sleeping": "hand-off to a sleeping waiter",
    "holding": "holding",
}
FIGURES = {
    "transitions_per_s": "transitions/s",
    "pairs_per_s": "pairs/s",
    "grants_per_s": "grants/s",
    "p50_ms": "p50 release → grant, ms",
    "p99_ms": "p99 release → grant, ms",
    "max_over_mean": "max/mean grants a waiter",
    "fewest_grants": "fewest grants of a waiter",
    "requests_per_grant": "requests a grant",
    "requests_per_s": "requests/s",
    "threads": "threads",
    "threads_added": "threads added by the locks",
    "rss_mb": "RSS, MB",
    "rss_bytes_per_lock": "RSS a lock, bytes",
    "taken_per_s": "locks taken/s",
}


def number(value: float | None) -> str:
    """A figure at the precision that it deserves."""
    if value is None or math.isnan(value):
        return "-"
    if value and abs(value) < 10:
        return f"{value:.3g}"
    return f"{value:,.0f}"


def headings(run: Run) -> list[str]:
    """What stands above the columns."""
    return ["measure", "figure", "holdfast", *([run.peer, "ratio"] if run.peer else [])]


def lines(run: Run) -> Iterator[list[str]]:
    """The table, a line for each figure. A measure is named on its first line only."""
    for result in run.results:
        ours, peer, ratios = result.medians(result.ours), result.medians(result.peer), result.ratios()
        title = f"{TITLES[result.group]}, {result.case}"
        for key, value in ours.items():
            beside = [number(peer.get(key)), number(ratios.get(key))] if run.peer else []
            yield [title, FIGURES[key], number(value), *beside]
            title = ""


def as_data(run: Run) -> dict[str, Any]:
    """The whole run as plain data, for JSON. What is not a number becomes null."""
    return {
        "url": run.url,
        "peer": run.peer,
        "ttl": run.ttl,
        "python": platform.python_version(),
        "plan": asdict(run.plan),
        "results": [_result(result) for result in run.results],
    }


def _result(result: Result) -> dict[str, Any]:
    return {
        "measure": result.group,
        "case": result.case,
        "holdfast": _plain(result.medians(result.ours)),
        "peer": _plain(result.medians(result.peer)) or None,
        "ratio": _plain(result.ratios()) or None,
        "rounds": {
            "holdfast": [_plain(run) for run in result.ours],
            "peer": [_plain(run) for run in result.peer],
        },
    }


def _plain(figures: Figures) -> dict[str, float | None]:
    return {key: None if math.isnan(value) else value for key, value in figures.items()}
