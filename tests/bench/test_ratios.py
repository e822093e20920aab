"""How two subjects are compared."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from holdfast.bench.measure import Figures, Result, Slice, compare, percentile
from holdfast.bench.plan import Plan
from holdfast.bench.subject import Connection, Subject, TaskConnection, Where

WHERE = Where("memory://", "", "bench", 10.0)


class Fake:
    """A subject that is never connected to."""

    has_tasks = True
    spans_processes = True
    schemes: tuple[str, ...] = ()

    def __init__(self, where: Where, name: str = "fake") -> None:
        self.where, self.name = where, name

    def connect(self) -> Connection:
        raise AssertionError("nobody connects to a fake")

    async def connect_tasks(self) -> TaskConnection:
        raise AssertionError("nobody connects to a fake")


class Script:
    """A measure whose figures are written down beforehand."""

    group, case = "pairs", "scripted"
    repeats = True

    def __init__(self, figures: dict[str, list[float]], fits: tuple[str, ...] = ("ours", "peer")) -> None:
        self.figures, self.names = figures, fits
        self.told: list[str] = []

    def fits(self, subject: Subject) -> bool:
        return subject.name in self.names

    @contextmanager
    def open(self, subject: Subject, plan: Plan) -> Iterator[Slice]:
        values = iter(self.figures[subject.name])

        def measure_once() -> Figures:
            self.told.append(subject.name)
            return {"pairs_per_s": next(values)}

        yield measure_once


def ours_and_peer(script: Script, rounds: int) -> Result:
    return compare(script, Fake(WHERE, "ours"), Fake(WHERE, "peer"), Plan(rounds=rounds))


def test_the_two_take_turns_round_by_round() -> None:
    script = Script({"ours": [1.0] * 3, "peer": [1.0] * 3})

    ours_and_peer(script, 3)

    assert script.told == ["ours", "peer"] * 3


def test_the_ratio_is_the_median_of_the_rounds_ratios_and_not_the_ratio_of_medians() -> None:
    # One slice of the first round is disturbed; the machine is ten times slower in the third, for both.
    result = ours_and_peer(Script({"ours": [10.0, 60.0, 6.0], "peer": [100.0, 100.0, 10.0]}), 3)

    assert result.ratios() == {"pairs_per_s": pytest.approx(0.6)}
    assert result.medians(result.ours)["pairs_per_s"] / result.medians(result.peer)["pairs_per_s"] != pytest.approx(0.6)


def test_a_figure_is_the_median_of_its_rounds() -> None:
    result = ours_and_peer(Script({"ours": [1.0, 9.0, 2.0], "peer": [5.0, 4.0, 100.0]}), 3)

    assert result.medians(result.ours) == {"pairs_per_s": 2.0}
    assert result.medians(result.peer) == {"pairs_per_s": 5.0}


def test_a_measure_that_does_not_fit_the_peer_is_run_without_it() -> None:
    script = Script({"ours": [1.0]}, fits=("ours",))

    result = ours_and_peer(script, 1)

    assert script.told == ["ours"]
    assert (result.peer, result.ratios()) == ((), {})


def test_a_measure_that_is_not_worth_repeating_shows_one_round() -> None:
    script = Script({"ours": [1.0], "peer": [2.0]})
    script.repeats = False

    result = ours_and_peer(script, 5)

    assert (len(result.ours), len(result.peer)) == (1, 1)


def test_a_figure_that_only_one_side_has_gets_no_ratio() -> None:
    result = Result("handoff", "", ({"p50_ms": 1.0, "requests_per_grant": 3.0},), ({"p50_ms": 4.0},))

    assert result.ratios() == {"p50_ms": 0.25}


def test_a_peer_that_did_nothing_gets_no_ratio() -> None:
    assert Result("pairs", "", ({"pairs_per_s": 1.0},), ({"pairs_per_s": 0.0},)).ratios() == {}


@pytest.mark.parametrize(("share", "value"), [(0.5, 50.0), (0.99, 99.0), (1.0, 100.0), (0.001, 1.0)])
def test_a_percentile_is_a_value_that_was_measured(share: float, value: float) -> None:
    assert percentile([float(number) for number in range(100, 0, -1)], share) == value


def test_a_percentile_of_nothing_is_not_a_number() -> None:
    assert math.isnan(percentile([], 0.5))
