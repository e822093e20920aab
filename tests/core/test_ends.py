"""Moments by key: the next death is found among very many without a look at them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.table import Dictionary, apply
from holdfast.core.table.commands import Enter, Open, Sweep
from holdfast.core.table.ends import NEVER, Ends
from holdfast.core.table.rows import Session
from holdfast.model import Claim

KEYS = st.sampled_from("abcdef")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, st.integers(0, 20)),
        st.tuples(st.just("drop"), KEYS, st.just(0)),
        st.tuples(st.just("dead"), st.just(""), st.integers(0, 20)),
    ),
    max_size=60,
)


def lines_run(work: Callable[[], object]) -> int:
    """How many lines of Python a piece of work takes: a look at every one of many takes many."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@given(STEPS)
def test_it_is_what_a_look_at_all_of_them_would_find(steps: list[tuple[str, str, int]]) -> None:
    ends: Ends[str] = Ends()
    plain: dict[str, float] = {}
    for what, key, number in steps:
        if what == "put":
            ends.put(key, number)
            plain[key] = number
        elif what == "drop":
            ends.drop(key)
            plain.pop(key, None)
        else:
            expected = sorted((moment, key) for key, moment in plain.items() if moment <= number)
            assert ends.dead(number) == [key for _, key in expected]
            assert ends.dead(number, 2) == [key for _, key in expected[:2]]
        assert ends.first() == min(plain.values(), default=NEVER)
        assert ends.moments == plain


def test_what_is_dropped_does_not_stay_until_its_moment() -> None:
    ends: Ends[int] = Ends()
    for number in range(10_000):
        ends.put(number, 1e9)
        ends.drop(number)

    assert len(ends._heap) < 200


def test_one_death_among_many_mortal_claims_is_found_without_a_look_at_the_others() -> None:
    table = Dictionary()

    def do(command: Any, now: float) -> Any:
        return apply(command, now, table.answer, table.put).reply

    do(Open(Session("s", 1e6, 0.0)), 0.0)
    for number in range(3_000):
        do(Enter(Claim(f"s-{number}", "s", "s/x", "holdfast.lock", f"n{number}", max_hold=10.0 + number)), 0.0)

    assert lines_run(lambda: do(Sweep(), 10.5)) < 1_000
    assert "s-0" not in table.rows
    assert lines_run(table.next_end) < 100
