"""The judge of a cell's history: whether all that was seen fits one order in which the calls happened.

Every write that was made has a version, and versions grow, so that order is known: it is enough
to check that each call fits it. Values are unique in a run, so a write whose answer was lost
is known by its value, if anybody saw it. A history that passes here is linearizable. The verifier's
own judge searches for an order, and gives up on as many calls at once as there are here.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from holdfast.verify.history import Call

FOREVER = float("inf")


def end(call: Call) -> float:
    """When it was over; a write whose answer was lost may be made at any time after its start."""
    return FOREVER if call.end is None or call.outcome == "unknown" else call.end


def version(call: Call) -> int:
    """What it wrote, what it saw, or what was there instead."""
    return call.version or 0


def violations(calls: list[Call]) -> list[str]:
    """What cannot be. Empty if the calls fit one order."""
    found = list(one_value_a_version(calls))
    return found or [*writes_that_expected(calls), *order_in_time(calls)]


def one_value_a_version(calls: list[Call]) -> Iterator[str]:
    """Each version has one value and each value one version, and what was refused is never seen."""
    refused = {call.value for call in calls if call.op == "cell_set" and call.outcome == "failed"}
    sent = {call.value for call in calls if call.op == "cell_set"}
    values: dict[int, str] = {}
    versions: dict[str, int] = {}
    for call in calls:
        if call.outcome != "ok" or not version(call):
            continue
        if call.value in refused or call.value not in sent:
            yield f"{call.value!r} was seen at {call.version}, and nobody wrote it"
        if values.setdefault(version(call), call.value) != call.value:
            yield f"version {call.version} is both {values[version(call)]!r} and {call.value!r}"
        if versions.setdefault(call.value, version(call)) != call.version:
            yield f"{call.value!r} was written twice: {versions[call.value]} and {call.version}"


def made(calls: list[Call]) -> dict[int, Call]:
    """The writes that were made, by version; one without an answer counts if its value was seen."""
    seen = {call.value: version(call) for call in calls if call.outcome == "ok" and version(call)}
    return {seen[call.value]: call for call in calls if call.op == "cell_set" and call.value in seen}


def writes_that_expected(calls: list[Call]) -> Iterator[str]:
    """A write that expected a version comes right after it."""
    writes = made(calls)
    for before, after in pairwise([0, *sorted(writes)]):
        expected = writes[after].expected
        if expected is not None and expected != before:
            yield f"{writes[after].value!r} expected {expected}, but came after {before} as {after}"


def order_in_time(calls: list[Call]) -> Iterator[str]:
    """Nobody sees less than was there before it began, or more than was begun before it ended."""
    writes = made(calls)
    began = {number: call.start for number, call in writes.items()}
    marks = sorted((end(call), version(call)) for call in calls if call.outcome != "unknown")
    highest, at = 0, 0
    for call in sorted(calls, key=lambda call: call.start):
        while at < len(marks) and marks[at][0] < call.start:
            highest, at = max(highest, marks[at][1]), at + 1
        if call.outcome == "unknown":
            number = next((number for number, write in writes.items() if write is call), None)
            if number is not None and number <= highest:
                yield f"{call.value!r} was written as {number} before it began: {highest} was there"
            continue
        writes_now = call.op == "cell_set" and call.outcome == "ok"
        if version(call) < highest or (writes_now and version(call) == highest):
            yield f"{call.op} of {call.value!r} at {call.version}, and {highest} was there before it began"
        if began.get(version(call), call.start) > end(call):
            yield f"{call.op} saw {call.version} before its writer began"
