"""Cells are linearizable: every call took effect at one moment between its start and its end.

A depth-first search for such an order, after Wing and Gong, with Lowe's memo of the configurations
that led nowhere: which calls were done, and the cell's state. Each cell is searched by itself,
which linearizability allows. A call of unknown outcome may take effect at any time after its
start, or never. The number of configurations is bounded: beyond it the claim is *not decided*.

Versions leave little to search. Writes are tried in the order of their versions only; one whose answer was
lost is known by its value, which is unique, if anybody saw it; and a look that fits what is there now is taken
at once, because it changes nothing and can only be in the way later. So a history of many clients at once is
decided in about as many steps as it has calls. What is left to search is what has no version: deletes, and
writes that nobody answered.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any, Final

from holdfast.verify.finding import Finding, Violation, found, violation
from holdfast.verify.history import Call, History

CLAIM = "cells"
OPS = frozenset({"cell_get", "cell_set", "cell_delete"})
MOST_CONFIGURATIONS = 100_000
"""Over all cells of a history; a few seconds' work."""

FOREVER = float("inf")


@dataclass(frozen=True, slots=True)
class State:
    """What a cell holds. The version of a write that was not answered is known only to be above `floor`."""

    value: Any = None
    version: int | None = 0
    floor: int = 0
    """The highest version that was ever there: a new one has to be above it, across deletes too."""


EMPTY = State()
ANY: Final = "any value at all"
UNSEEN = State(ANY, None, -1)
"""A cell of which nothing is known: the first look settles it."""


class Bound(Exception):
    """More configurations than are allowed."""


class Budget:
    """How many configurations may still be looked at."""

    def __init__(self, most: int) -> None:
        self.left = most

    def spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Bound


def check(history: History, most: int | None = None) -> Finding:
    """Search an order for each cell, within so many configurations."""
    most = MOST_CONFIGURATIONS if most is None else most
    by_name: dict[tuple[str, str], list[Call]] = defaultdict(list)
    for call in history.calls:
        if call.op in OPS and _says_something(call):
            by_name[call.kind, call.name].append(call)
    budget, violations, undecided = Budget(most), [], []
    for (_, name), calls in by_name.items():
        try:
            if not linearizable(calls, budget):
                violations.append(_told(name, calls, budget))
        except Bound:
            undecided.append(name)
            budget = Budget(max(most // 10, 1))
    if undecided and not violations:
        names = ", ".join(sorted(undecided)[:3])
        why = f"{names}: no order was found or excluded within {most} configurations"
        return Finding(CLAIM, "not decided", sum(map(len, by_name.values())), why=why)
    return found(CLAIM, sum(map(len, by_name.values())), violations, "no cell was used")


def _says_something(call: Call) -> bool:
    """A get without an answer, or a refusal that names no version, fits every order."""
    if call.ok:
        return True
    if call.op == "cell_get":
        return False
    return call.outcome == "unknown" or (call.error == "Conflict" and call.version is not None)


def linearizable(calls: list[Call], budget: Budget, initial: State = EMPTY) -> bool:
    """Whether there is one order of these calls of one cell, each within its time, that a cell could give."""
    calls, happened = settle(sorted(calls, key=lambda call: call.start))
    ends = [FOREVER if call.end is None or call.outcome == "unknown" else call.end for call in calls]
    must = sum(1 << index for index, call in enumerate(calls) if call.outcome != "unknown" or call.id in happened)
    dead: set[tuple[int, Any, int | None, int]] = set()
    stack: list[tuple[int, int, State]] = [(0, 0, initial)]
    while stack:
        done, first, state = stack.pop()
        if done & must == must:
            return True
        key = (done, _hashable(state.value), state.version, state.floor)
        if key in dead:
            continue
        dead.add(key)
        budget.spend()
        while done >> first & 1:
            first += 1
        stack += _next(calls, ends, done, first, state)
    return False


def settle(calls: list[Call]) -> tuple[list[Call], set[str]]:
    """The calls with what the others tell about them, and the ids of those without an answer that were done.

    A write without an answer whose value was seen was done, and has the version that was seen with it. One that
    nobody saw explains nothing, and is left out, unless a version was seen that no other write explains.
    """
    writes = [call for call in calls if call.op == "cell_set" and call.value is not None]
    values = [_hashable(call.value) for call in writes]
    if len(set(values)) < len(values):
        return calls, set()  # then a value does not tell who wrote it
    seen = {_hashable(call.value): call.version for call in calls if call.op == "cell_get" and call.version}
    told = {call.version for call in calls if call.version} | {call.expected for call in calls if call.expected}
    known = {call.version for call in writes if call.ok}
    explained = told <= known | {seen.get(_hashable(call.value)) for call in writes}
    settled, happened = [], set[str]()
    for call in calls:
        if call.op == "cell_set" and call.outcome == "unknown" and call.value is not None:
            version = seen.get(_hashable(call.value))
            if version is not None:
                call = replace(call, version=version)
                happened.add(call.id)
            elif explained:
                continue
        settled.append(call)
    return settled, happened


def _next(calls: list[Call], ends: list[float], done: int, first: int, state: State) -> list[tuple[int, int, State]]:
    """The configurations one call further: only calls that began before every other one left had ended."""
    soonest = FOREVER
    candidates = []
    for index in range(first, len(calls)):
        if calls[index].start > soonest:
            break
        if not done >> index & 1:
            candidates.append(index)
            soonest = min(soonest, ends[index])
    following: list[tuple[int, int, State]] = []
    lowest = min((_written(calls[index]) for index in candidates), default=FOREVER)
    # The last one pushed is tried first: the one that ended first is the likeliest to have come first.
    for index in sorted(candidates, key=lambda each: -ends[each]):
        call = calls[index]
        # A higher version before a lower one that is due: the lower one could not be written any more.
        if call.start <= soonest and not lowest < _written(call) < FOREVER:
            after = apply(call, state)
            if after == state and (call.op == "cell_get" or call.outcome == "failed"):
                return [(done | 1 << index, first, state)]
            if after is not None:
                following.append((done | 1 << index, first, after))
    return following


def _written(call: Call) -> float:
    """The version that this call has certainly written; FOREVER if there is none."""
    return call.version if call.op == "cell_set" and call.outcome != "failed" and call.version else FOREVER


def apply(call: Call, state: State) -> State | None:
    """The cell after this call, or None if it could not have been answered so."""
    if call.op == "cell_get":
        if state.value is ANY:
            state = replace(state, value=call.value)
        return _seen(state, call.version) if call.value == state.value else None
    if call.outcome == "failed":
        # It was refused: another version than the expected one was there.
        return _seen(state, call.version) if call.version != call.expected else None
    if call.expected is not None:
        known = _seen(state, call.expected)
        if known is None:
            return None
        state = known
    if call.op == "cell_delete" or call.value is None:
        return State(None, 0, state.floor)
    if call.version is None:
        return State(call.value, None, max(state.floor, state.version or 0))
    return State(call.value, call.version, call.version) if call.version > state.floor else None


def _seen(state: State, version: int | None) -> State | None:
    """The state, once its version is known to be this one."""
    if version is None or state.version == version:
        return state
    if state.version is None and version > state.floor:
        return State(state.value, version, version)
    return None


def _hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value


def _told(name: str, calls: list[Call], budget: Budget) -> Violation:
    """The shortest stretch that has no order, without the calls that do not matter to it."""
    calls = sorted(calls, key=lambda call: call.start)
    try:
        calls = _beginning(calls, budget)
        calls = _needed(*_ending(calls, budget), budget)
    except Bound:
        # What was cut so far is true, only longer than it need be.
        budget.left = 0
    last = max((call.end or call.start for call in calls), default=0.0)
    summary = f"no order of these {len(calls)} calls is one that the cell {name!r} could give"
    return violation(CLAIM, summary, calls, last)


def _beginning(calls: list[Call], budget: Budget) -> list[Call]:
    """Cut off what came after the claim was broken. Calls under way at that moment count as unanswered."""
    times = sorted({call.end for call in calls if call.end is not None})
    low, high = 0, len(times) - 1
    while low < high:
        middle = (low + high) // 2
        if linearizable(_until(calls, times[middle]), budget):
            low = middle + 1
        else:
            high = middle
    return _until(calls, times[high])


def _until(calls: list[Call], moment: float) -> list[Call]:
    kept = []
    for call in calls:
        if call.end is not None and call.end <= moment:
            kept.append(call)
        elif call.start <= moment and call.op != "cell_get" and call.outcome != "failed":
            kept.append(replace(call, end=None, outcome="unknown", version=None))
    return kept


def _ending(calls: list[Call], budget: Budget) -> tuple[list[Call], State]:
    """Cut off what came before, as long as the rest is impossible whatever the cell held then."""
    if linearizable(calls, budget, UNSEEN):
        return calls, EMPTY
    starts = sorted({call.start for call in calls})
    low, high = 0, len(starts) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if linearizable(_since(calls, starts[middle]), budget, UNSEEN):
            high = middle - 1
        else:
            low = middle
    return _since(calls, starts[low]), UNSEEN


def _since(calls: list[Call], moment: float) -> list[Call]:
    return [call for call in calls if call.outcome == "unknown" or call.end is None or call.end >= moment]


def _needed(calls: list[Call], initial: State, budget: Budget) -> list[Call]:
    """Leave out gets and refusals that do not matter. A write stays: without it others would look impossible."""
    kept = list(calls)
    for call in calls:
        if call.op == "cell_get" or call.outcome == "failed":
            fewer = [other for other in kept if other is not call]
            if not linearizable(fewer, budget, initial):
                kept = fewer
    return kept
