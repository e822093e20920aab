"""The checker of cells, on good and on bad histories, and against a search without any cleverness."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.verify.checkers import cells
from holdfast.verify.checkers.cells import Budget, State, apply, linearizable
from holdfast.verify.history import Call, Outcome, Record
from tests.verify.told import call, history


def got(process: str, start: float, end: float, value: str | None, version: int, **facts: Any) -> Call:
    return call("cell_get", process, start, end, value=value, version=version, **facts)


def put(
    process: str,
    start: float,
    end: float | None,
    value: str,
    version: int | None,
    outcome: Outcome = "ok",
    **facts: Any,
) -> Call:
    return call("cell_set", process, start, end, outcome, value=value, version=version, **facts)


def refused(process: str, start: float, end: float, expected: int, current: int) -> Call:
    return put(process, start, end, "no", current, "failed", expected=expected, error="Conflict")


def dropped(process: str, start: float, end: float | None, outcome: Outcome = "ok", **facts: Any) -> Call:
    return call("cell_delete", process, start, end, outcome, version=0 if outcome == "ok" else None, **facts)


GOOD: dict[str, list[Record]] = {
    "nothing, then something": [got("a", 0, 1, None, 0), put("a", 2, 3, "x", 1), got("b", 4, 5, "x", 1)],
    "a get during a set sees either": [
        put("a", 0, 1, "x", 1),
        put("a", 2, 9, "y", 2),
        got("b", 3, 4, "x", 1),
        got("b", 5, 6, "y", 2),
    ],
    "compare and set in turn": [
        put("a", 0, 1, "x", 1, expected=0),
        put("b", 2, 3, "y", 2, expected=1),
        refused("c", 4, 5, 1, 2),
    ],
    "a conflict with one that is under way": [put("a", 0, 9, "x", 1, expected=0), refused("b", 1, 2, 0, 1)],
    "an unanswered set shows late": [
        put("a", 0, None, "x", None, "unknown"),
        got("b", 1, 2, None, 0),
        got("b", 3, 4, "x", 7),
    ],
    "an unanswered set never shows": [put("a", 0, 1, "x", None, "unknown"), got("b", 3, 4, None, 0)],
    "an unanswered set was compared": [
        put("a", 0, 1, "x", 1),
        put("a", 2, None, "y", None, "unknown", expected=1),
        put("b", 3, 4, "z", 9, expected=5),
    ],
    "a delete": [put("a", 0, 1, "x", 1), dropped("a", 2, 3, expected=1), got("b", 4, 5, None, 0)],
    "a delete of nothing": [dropped("a", 0, 1), got("b", 4, 5, None, 0)],
    "versions grow across a delete": [put("a", 0, 1, "x", 5), dropped("a", 2, 3), put("a", 4, 5, "y", 6)],
    "an unanswered delete": [put("a", 0, 1, "x", 5), dropped("a", 2, None, "unknown"), got("b", 3, 4, None, 0)],
    "a get that was not answered": [put("a", 0, 1, "x", 5), call("cell_get", "b", 2, None, "unknown")],
    "two cells": [put("a", 0, 1, "x", 5), got("b", 2, 3, None, 0, name="other")],
}
BAD: dict[str, list[Record]] = {
    "a stale get": [put("a", 0, 1, "x", 1), put("a", 2, 3, "y", 2), got("b", 4, 5, "x", 1)],
    "a value from nowhere": [got("b", 4, 5, "x", 1)],
    "back in time": [
        put("a", 0, 1, "x", 1),
        put("a", 2, 9, "y", 2),
        got("b", 3, 4, "y", 2),
        got("c", 5, 6, "x", 1),
    ],
    "two won with one version": [put("a", 0, 9, "x", 1, expected=0), put("b", 1, 8, "y", 2, expected=0)],
    "a conflict with nobody": [refused("b", 1, 2, 0, 1)],
    "refused with the right version": [put("a", 0, 1, "x", 1), refused("b", 2, 3, 1, 1)],
    "a version comes again": [put("a", 0, 1, "x", 1), put("b", 2, 3, "y", 1)],
    "versions start again after a delete": [put("a", 0, 1, "x", 5), dropped("a", 2, 3), put("a", 4, 5, "y", 1)],
    "a delete that deletes nothing": [put("a", 0, 1, "x", 5), dropped("a", 2, 3), got("b", 4, 5, "x", 5)],
    "an unanswered set comes and goes": [
        put("a", 0, None, "x", None, "unknown"),
        got("b", 1, 2, "x", 4),
        got("b", 3, 4, None, 0),
    ],
    "an unanswered set has two versions": [
        put("a", 0, None, "x", None, "unknown"),
        got("b", 1, 2, "x", 4),
        got("b", 3, 4, "x", 5),
    ],
    "an unanswered set before it began": [got("b", 1, 2, "x", 4), put("a", 3, None, "x", None, "unknown")],
}


@pytest.mark.parametrize("name", GOOD)
def test_a_history_that_a_cell_could_give_raises_no_alarm(name: str) -> None:
    assert cells.check(history(*GOOD[name])).state == "kept"


@pytest.mark.parametrize("name", BAD)
def test_a_history_that_no_cell_could_give_is_caught(name: str) -> None:
    assert cells.check(history(*BAD[name])).state == "broken"


def test_without_a_cell_nothing_was_tested() -> None:
    assert cells.check(history(call("acquire", "a", 0, 1))).state == "not tested"


def test_a_search_that_is_cut_off_says_that_it_did_not_decide() -> None:
    unanswered = [put(f"p{turn}", 0, None, f"v{turn}", None, "unknown") for turn in range(12)]
    finding = cells.check(history(*unanswered, got("b", 1, 2, "never written", 99)), most=500)

    assert finding.state == "not decided"
    assert "500" in finding.why


def test_a_long_history_is_decided_within_the_bound() -> None:
    calls: list[Record] = []
    for turn in range(1, 1500):
        calls.append(put("a", turn, turn + 0.5, f"v{turn}", turn, expected=turn - 1))
        calls.append(got("b", turn + 0.6, turn + 0.7, f"v{turn}", turn))
        calls.append(refused("c", turn + 0.6, turn + 0.9, turn - 1, turn))

    assert cells.check(history(*calls)).state == "kept"


def test_the_story_of_a_long_history_is_short() -> None:
    calls: list[Record] = []
    for turn in range(1, 300):
        calls.append(put("a", turn, turn + 0.5, f"v{turn}", turn))
        calls.append(got("b", turn + 0.6, turn + 0.7, f"v{turn}", turn))
    calls.append(got("c", 200.8, 200.9, "v198", 198))

    broken = cells.check(history(*calls)).shortest

    assert broken is not None
    assert len(broken.records) <= 3
    assert broken.at == 200.9


VALUES = st.sampled_from(["x", "y"])
VERSIONS = st.integers(0, 3)


@st.composite
def any_calls(draw: st.DrawFn) -> list[Call]:
    """A few calls with any answers at any times."""
    found: list[Call] = []
    for _ in range(draw(st.integers(1, 5))):
        start = draw(st.integers(0, 6))
        end = start + draw(st.integers(1, 4)) - 0.5
        op = draw(st.sampled_from(["cell_get", "cell_set", "cell_delete"]))
        outcome: Outcome = "ok" if op == "cell_get" else draw(st.sampled_from(["ok", "ok", "failed", "unknown"]))
        version, value = draw(VERSIONS), draw(VALUES)
        if op == "cell_get":
            found.append(got("p", start, end, value if version else None, version))
        elif outcome == "failed":
            found.append(refused("p", start, end, draw(VERSIONS), version))
        elif op == "cell_set":
            known = None if outcome == "unknown" else max(version, 1)
            found.append(put("p", start, end, value, known, outcome, expected=draw(st.none() | VERSIONS)))
        else:
            found.append(dropped("p", start, end, outcome, expected=draw(st.none() | VERSIONS)))
    return found


@st.composite
def calls_with_unique_values(draw: st.DrawFn) -> list[Call]:
    """The same, but every value is written once: then it tells who wrote it, whether that was answered or not."""
    count = draw(st.integers(1, 5))
    values = [f"v{number}" for number in range(count)]
    found: list[Call] = []
    for value in values:
        start = draw(st.integers(0, 6))
        end = start + draw(st.integers(1, 4)) - 0.5
        kind = draw(st.sampled_from(["get", "get", "set", "set", "lost", "refused", "dropped"]))
        version, expected = draw(VERSIONS), draw(st.none() | VERSIONS)
        if kind == "get":
            found.append(got("p", start, end, draw(st.sampled_from(values)) if version else None, version))
        elif kind == "set":
            found.append(put("p", start, end, value, max(version, 1), expected=expected))
        elif kind == "lost":
            found.append(put("p", start, end, value, None, "unknown", expected=expected))
        elif kind == "refused":
            found.append(refused("p", start, end, expected or 0, version))
        else:
            found.append(dropped("p", start, end, draw(st.sampled_from(["ok", "unknown"])), expected=expected))
    return found


def plainly_linearizable(calls: list[Call]) -> bool:
    """Every order of every choice of the unanswered ones."""
    unknown = [each for each in calls if each.outcome == "unknown"]
    certain = [each for each in calls if each.outcome != "unknown"]
    for count in range(len(unknown) + 1):
        for chosen in itertools.combinations(unknown, count):
            for order in itertools.permutations([*certain, *chosen]):
                if _in_time(order) and _fits(order):
                    return True
    return False


def _in_time(order: tuple[Call, ...]) -> bool:
    return not any(
        later.outcome != "unknown" and later.end is not None and later.end < earlier.start
        for earlier, later in itertools.combinations(order, 2)
    )


def _fits(order: tuple[Call, ...]) -> bool:
    state: State | None = State()
    for each in order:
        assert state is not None
        state = apply(each, state)
        if state is None:
            return False
    return True


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(any_calls())
def test_the_search_finds_an_order_exactly_when_there_is_one(calls: list[Call]) -> None:
    assert linearizable(calls, Budget(100_000)) == plainly_linearizable(calls)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(calls_with_unique_values())
def test_what_versions_tell_makes_no_difference_to_what_is_found(calls: list[Call]) -> None:
    assert linearizable(calls, Budget(100_000)) == plainly_linearizable(calls)


def a_crowd(writers: int, turns: int, seed: int) -> list[Call]:
    """Many clients at once on one cell that is right, with answers that get lost."""
    chance = random.Random(seed)
    moments = sorted((chance.uniform(0, turns), f"c{chance.randrange(writers)}") for _ in range(writers * turns))
    value, version, last, known = None, 0, 0, dict[str, tuple[str | None, int]]()
    found: list[Call] = []
    for number, (at, process) in enumerate(moments):
        start, end = at - chance.uniform(0.0, 0.9), at + chance.uniform(0.0, 0.9)
        expected = known.pop(process, (None, 0))[1] if process in known else None
        if expected is None:
            found.append(got(process, start, end, value, version))
            known[process] = value, version
        elif expected != version:
            found.append(
                put(process, start, end, f"no{number}", version, "failed", expected=expected, error="Conflict")
            )
        else:
            lost, value, version, last = chance.random() < 0.05, f"v{number}", last + 1, last + 1
            if lost:
                found.append(put(process, start, end, value, None, "unknown", expected=expected))
            else:
                found.append(put(process, start, end, value, version, expected=expected))
    return found


@pytest.mark.parametrize("seed", range(3))
def test_many_writers_at_once_are_decided(seed: int) -> None:
    calls = a_crowd(16, 40, seed)

    assert cells.check(history(*calls)).state == "kept"

    gets = [each for each in calls if each.op == "cell_get" and each.version]
    stale = replace(gets[len(gets) // 4], start=38.0, end=38.5)
    finding = cells.check(history(*[each for each in calls if each is not gets[len(gets) // 4]], stale))
    assert finding.state == "broken"
    assert finding.shortest is not None


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(any_calls())
def test_the_short_story_is_impossible_by_itself(calls: list[Call]) -> None:
    finding = cells.check(history(*calls))

    if finding.shortest is not None:
        told = [record for record in finding.shortest.records if isinstance(record, Call)]
        assert not linearizable(told, Budget(100_000))
