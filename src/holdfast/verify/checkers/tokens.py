"""A grant's token is larger than that of every earlier grant that conflicts with it.

Which of two was granted first is told by the order in which their acquires were answered: if
exclusion holds, the second could be granted only after the first had ended. A grant that was over
before its answer was read is left out. Where both were held together, which is for the checker of
exclusion, their answers tell nothing, unless the second asked after the first had its answer. What
was not answered has no token that anybody could have used.

Two equal tokens are wrong in either order. Two primaries that both grant can cause them, but only
for requests that overlap in time: each reads the clock while it answers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from holdfast.verify.checkers import exclusion
from holdfast.verify.checkers.exclusion import conflict
from holdfast.verify.finding import Finding, Violation, around, found, violation
from holdfast.verify.history import GRANTING, Call, History
from holdfast.verify.holds import Hold, holds, spaces

CLAIM = "tokens"


def check(history: History) -> Finding:
    """Look for a token that did not grow."""
    granted = [call for call in history.calls if call.op in GRANTING and call.ok and call.token is not None]
    valid = [call for call in granted if call.end is not None and (call.deadline is None or call.deadline > call.end)]
    valid.sort(key=lambda call: call.end or 0.0)
    return found(CLAIM, len(valid), _steps_back(history, valid), "no grant had a token")


def _steps_back(history: History, granted: list[Call]) -> Iterator[Violation]:
    over = {hold.call.id: hold for hold in holds(history)}
    covering = [call for call in granted if call.subtree]
    groups: dict[tuple[object, ...], list[Call]] = defaultdict(list)
    for call in granted:
        groups[spaces(call.kind), call.name, call.slot].append(call)
    for group in groups.values():
        yield from _in_one_name(history, group, over)
    # Names that differ conflict only where one is a subtree: few, so every pair is looked at.
    for cover in covering:
        for call in granted:
            if call.name != cover.name and conflict(cover, call):
                first, second = sorted((cover, call), key=lambda each: each.end or 0.0)
                if _backwards(first, second, over):
                    yield _told(history, first, second, over)


def _in_one_name(history: History, group: list[Call], over: Mapping[str, Hold]) -> Iterator[Violation]:
    """Compare each with the highest before it: of all, if it excludes all; of the exclusive ones, if it is shared."""
    highest: Call | None = None
    highest_exclusive: Call | None = None
    for call in group:
        before = highest_exclusive if call.mode == "shared" else highest
        if before is not None and conflict(before, call) and _backwards(before, call, over):
            yield _told(history, before, call, over)
        if highest is None or (call.token or 0) > (highest.token or 0):
            highest = call
        if call.mode == "exclusive" and (
            highest_exclusive is None or (call.token or 0) > (highest_exclusive.token or 0)
        ):
            highest_exclusive = call


def _backwards(first: Call, second: Call, over: Mapping[str, Hold]) -> bool:
    assert first.token is not None
    assert second.token is not None
    assert first.end is not None
    assert second.end is not None
    if second.token == first.token:
        # A re-entry is the same grant, and keeps its token.
        return not (first.claim == second.claim and first.process == second.process and first.claim)
    together = second.start < first.end and first.id in over and second.end < over[first.id].end
    return second.token < first.token and not together


def _told(history: History, first: Call, second: Call, over: Mapping[str, Hold]) -> Violation:
    word = "repeats" if second.token == first.token else "is below"
    summary = (
        f"token {second.token} of {second.process} {word} token {first.token}, "
        f"which {first.process} was given for {first.name!r} before"
    )
    end = second.end if second.end is not None else second.start
    faults = around(history, (first.process, second.process), first.start, end)
    ended = over[first.id].ended_by if first.id in over else None
    # Who asked after the first was answered came after it, whatever else is true.
    overlap = second.start <= (first.end or 0.0)
    equal = second.token == first.token
    given = exclusion.CLAIM if overlap and not equal else ""
    return violation(CLAIM, summary, [first, second, ended, *faults], end, given, equal_tokens=overlap and equal)
