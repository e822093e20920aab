"""The figures as people and programs see them."""

from __future__ import annotations

import json
import math

import pytest

from holdfast.bench import report
from holdfast.bench.measure import Result
from holdfast.bench.plan import Plan
from holdfast.bench.suite import MEASURES, Run


def made(*results: Result, peer: str | None = "filelock") -> Run:
    return Run("sqlite:///x.db", peer, 10.0, Plan(), results)


RESULT = Result("pairs", "blocking, 1 thread", ({"pairs_per_s": 6000.0},), ({"pairs_per_s": 10000.0},))


def test_a_line_has_our_figure_the_peers_and_the_ratio() -> None:
    (line,) = report.lines(made(RESULT))

    assert line == ["uncontended, blocking, 1 thread", "pairs/s", "6,000", "10,000", "0.6"]
    assert len(report.headings(made(RESULT))) == len(line)


def test_without_a_peer_there_is_no_column_for_one() -> None:
    alone = made(Result("pairs", "blocking, 1 thread", RESULT.ours), peer=None)

    assert report.headings(alone) == ["measure", "figure", "holdfast"]
    assert list(report.lines(alone)) == [["uncontended, blocking, 1 thread", "pairs/s", "6,000"]]


def test_a_measure_without_the_peer_leaves_its_columns_empty() -> None:
    table = Result("table", "in memory", ({"transitions_per_s": 200_000.0},))

    (line,) = report.lines(made(table))

    assert line[2:] == ["200,000", "-", "-"]


def test_what_is_not_a_number_is_null_in_json() -> None:
    result = Result("handoff", "8 threads", ({"p50_ms": math.nan},))

    data = json.dumps(report.as_data(made(result)), allow_nan=False)

    assert json.loads(data)["results"][0]["holdfast"] == {"p50_ms": None}


@pytest.mark.parametrize(("value", "text"), [(0.0, "0"), (0.12345, "0.123"), (9.87654, "9.88"), (12345.6, "12,346")])
def test_numbers_have_as_many_digits_as_they_deserve(value: float, text: str) -> None:
    assert report.number(value) == text


def test_every_group_of_measures_has_a_title() -> None:
    assert {measure.group for measure in MEASURES} <= set(report.TITLES)
