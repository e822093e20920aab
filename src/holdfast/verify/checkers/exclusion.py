"""Two conflicting grants are never both held.

Aware of owners (a re-entry is no conflict), of readers and writers, of subtrees, and of permits: no
more than `limit` at a time, no slot twice. What was not answered is not held by anybody, so it
cannot overlap; what it leaves behind is for the checkers of progress and of leaks.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.verify.finding import Finding, Violation, around, found, violation
from holdfast.verify.history import Call, History
from holdfast.verify.holds import Hold, holds, spaces

CLAIM = "exclusion"


def check(history: History) -> Finding:
    """Look for holds that overlap and must not."""
    every = holds(history)
    return found(CLAIM, len(every), _overlaps(history, every), "nothing was acquired")


def _overlaps(history: History, every: list[Hold]) -> Iterator[Violation]:
    active: list[Hold] = []
    for hold in every:
        active = [other for other in active if other.end > hold.start]
        rivals = [other for other in active if _same_space(other.call, hold.call)]
        if hold.call.limit:
            yield from _permits(history, hold, rivals)
        else:
            for other in rivals:
                if conflict(other.call, hold.call):
                    yield _both(history, other, hold)
        active.append(hold)


def _same_space(one: Call, other: Call) -> bool:
    return spaces(one.kind) == spaces(other.kind)


def related(one: Call, other: Call) -> bool:
    """Whether two calls are about the same name, or one covers the other's as its subtree."""
    if not _same_space(one, other):
        return False
    if one.name == other.name:
        return True
    if one.subtree and other.name.startswith(f"{one.name}/"):
        return True
    return other.subtree and one.name.startswith(f"{other.name}/")


def conflict(one: Call, other: Call) -> bool:
    """Whether two acquires exclude each other. Permits: whether they are for one slot."""
    if not related(one, other):
        return False
    if one.limit or other.limit:
        return one.slot is not None and one.slot == other.slot
    if one.mode == "shared" and other.mode == "shared":
        return False
    return not (one.owner == other.owner and one.process == other.process and one.reentrant and other.reentrant)


def _both(history: History, earlier: Hold, later: Hold) -> Violation:
    first, second = earlier.call, later.call
    together = min(earlier.end, later.end) - later.start
    summary = (
        f"{second.process} (token {second.token}) and {first.process} (token {first.token}) "
        f"both held {second.name!r} for {together:.4f} s"
    )
    if first.limit:
        summary += f", slot {first.slot}"
    faults = around(history, (first.process, second.process), earlier.start, later.start)
    return violation(CLAIM, summary, [first, second, earlier.ended_by, later.ended_by, *faults], later.start)


def _permits(history: History, hold: Hold, rivals: list[Hold]) -> Iterator[Violation]:
    others = [other for other in rivals if other.call.name == hold.call.name]
    twice = [other for other in others if conflict(other.call, hold.call)]
    for other in twice:
        yield _both(history, other, hold)
    if not twice and len(others) >= hold.call.limit:
        call = hold.call
        summary = f"{len(others) + 1} held {call.name!r} together, which has {call.limit} permits"
        ends = [other.ended_by for other in others]
        yield violation(CLAIM, summary, [call, hold.ended_by, *(other.call for other in others), *ends], hold.start)
