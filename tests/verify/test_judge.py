"""The judge is judged: never an alarm on a correct lock, always one where a single thing is wrong."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from holdfast.verify.checkers import exclusion, leaks, order, progress, tokens
from holdfast.verify.finding import story
from holdfast.verify.history import Call, History, Note
from holdfast.verify.holds import Hold, holds
from tests.verify.told import call
from tests.verify.worlds import Turn, play, worlds

CHECKERS = (exclusion, tokens, order, progress, leaks)
often = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@often
@given(worlds)
def test_a_correct_lock_never_raises_an_alarm(plan: list[Turn]) -> None:
    history = play(plan)

    for checker in CHECKERS:
        finding = checker.check(history)
        assert finding.state in ("kept", "not tested"), finding.shortest and story(finding.shortest)


def put(history: History, old: Call, new: Call) -> History:
    return History.of([new if record is old else record for record in history])


def pick_hold(data: st.DataObject, history: History, fits: Callable[[Hold], bool]) -> Hold:
    found = [hold for hold in holds(history) if fits(hold)]
    assume(found)
    return data.draw(st.sampled_from(found))


def grants_while_held(data: st.DataObject, history: History) -> History:
    """Somebody gets the lock while it is held by a writer."""
    hold = pick_hold(data, history, lambda each: each.call.mode == "exclusive")
    at = hold.start + (hold.end - hold.start) * data.draw(st.floats(0.01, 0.9))
    assume(hold.start < at < hold.end)
    intruder = call("acquire", "intruder", at - 0.001, at, claim="intruder", token=10_000, deadline=at + 1)
    return History.of([*history, intruder])


def repeats_a_token(data: st.DataObject, history: History) -> History:
    """A grant has the token of the one before it."""
    granted = sorted((hold.call for hold in holds(history)), key=lambda each: each.end or 0.0)
    pairs = [(one, other) for one, other in itertools.pairwise(granted) if "exclusive" in (one.mode, other.mode)]
    assume(pairs)
    before, after = data.draw(st.sampled_from(pairs))
    return put(history, after, replace(after, token=before.token))


def overtakes(data: st.DataObject, history: History) -> History:
    """Somebody who came later goes before one who is in line."""
    first = pick_hold(data, history, lambda each: each.call.queued is not None).call
    assert first.queued is not None
    assert first.end is not None
    assert first.token is not None
    start = first.queued + (first.end - first.queued) * 0.3
    end = first.queued + (first.end - first.queued) * 0.6
    assume(first.queued < start < end < first.end)
    intruder = call("acquire", "intruder", start, end, claim="i", token=first.token - 1, deadline=end)
    return History.of([*history, intruder])


def never_grants_again(data: st.DataObject, history: History) -> History:
    """After healing somebody waits for ever."""
    heal = history.note("heal")
    assert heal is not None
    start = heal.at + data.draw(st.floats(-5.0, 1.0))
    return History.of([*history, call("acquire", "waiter", start, None, "unknown")])


def keeps_a_ghost(data: st.DataObject, history: History) -> History:
    """Something is held or queued after the end."""
    last = next(each for each in history.calls if each.op == "inspect")
    role = data.draw(st.sampled_from(["holders", "waiters"]))
    return put(history, last, replace(last, value={**last.value, role: ["ghost"]}))


MUTATIONS: list[tuple[Callable[[st.DataObject, History], History], ModuleType]] = [
    (grants_while_held, exclusion),
    (repeats_a_token, tokens),
    (overtakes, order),
    (never_grants_again, progress),
    (keeps_a_ghost, leaks),
]


@pytest.mark.parametrize(("mutate", "checker"), MUTATIONS, ids=[mutate.__name__ for mutate, _ in MUTATIONS])
def test_one_wrong_thing_is_always_caught(
    mutate: Callable[[st.DataObject, History], History], checker: ModuleType
) -> None:
    @often
    @given(worlds, st.data())
    def run(plan: list[Turn], data: st.DataObject) -> None:
        wrong = mutate(data, play(plan))
        finding = checker.check(wrong)
        assert finding.state == "broken"
        assert finding.shortest is not None
        # The story alone proves it, too.
        alone = History.of([*finding.shortest.records, *(note for note in wrong.notes if isinstance(note, Note))])
        assert checker.check(alone).state == "broken"

    run()
