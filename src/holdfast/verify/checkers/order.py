"""Among conflicting claims the earlier arrival goes first.

Who arrived first is known only where one claim was told its place in line before the other's call
began. Who was granted first is told by their tokens, which grow in that order; where the earlier
one gave up instead, by the later one's answer that came before.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterator

from holdfast.verify.checkers.exclusion import conflict
from holdfast.verify.finding import Finding, Violation, around, found, violation
from holdfast.verify.history import GRANTING, Call, History
from holdfast.verify.holds import spaces

CLAIM = "order"


def check(history: History) -> Finding:
    """Look for a claim that was overtaken."""
    acquires = [call for call in history.calls if call.op in GRANTING and call.op != "adopt" and not call.subtree]
    groups: dict[tuple[str, str], list[Call]] = defaultdict(list)
    for call in acquires:
        groups[spaces(call.kind), call.name].append(call)
    queued = [call for call in acquires if call.queued is not None and _ends_known(call)]
    violations = [each for group in groups.values() for each in _overtaken(history, group)]
    return found(CLAIM, len(queued), violations, "nobody stood in line")


def _ends_known(call: Call) -> bool:
    """Whether it is known how its wait ended: granted, or given up when its time was over."""
    return call.ok or (call.outcome == "failed" and call.error == "NotAcquired" and call.wait is not None)


def _overtaken(history: History, group: list[Call]) -> Iterator[Violation]:
    """For each that stood in line, those that began later: only until its own end can they overtake it."""
    # A re-entry takes nobody's place: only the first acquire of a claim can overtake.
    entered = {(call.process, call.claim or call.id): call for call in reversed(group) if call.ok}
    granted = sorted((call for call in entered.values() if call.end is not None), key=lambda call: call.start)
    starts = [call.start for call in granted]
    for first in group:
        if first.queued is None or first.end is None or not _ends_known(first):
            continue
        low, high = bisect.bisect_right(starts, first.queued), bisect.bisect_left(starts, first.end)
        for second in granted[low:high]:
            if _excludes(first, second) and _went_first(second, first):
                yield _told(history, first, second)


def _excludes(first: Call, second: Call) -> bool:
    """Whether the two could not be granted together. Any two permits stand in one line."""
    return bool(first.limit) or conflict(first, second)


def _went_first(second: Call, first: Call) -> bool:
    if first.ok and not first.limit:
        assert first.end is not None
        assert second.end is not None
        known = first.token is not None and second.token is not None
        return known and (second.token or 0) < (first.token or 0) and second.end < first.end
    if first.ok:
        # Two permits may be given in one step and reported in any order.
        return False
    assert first.wait is not None
    return second.end is not None and second.end < first.start + first.wait


def _told(history: History, first: Call, second: Call) -> Violation:
    assert first.queued is not None
    fate = f"was granted later, with token {first.token}" if first.ok else "gave up later, without it"
    summary = (
        f"{second.process} (token {second.token}) overtook {first.process}, which stood in line for "
        f"{first.name!r} {second.start - first.queued:.4f} s before {second.process} asked and {fate}"
    )
    end = second.end if second.end is not None else second.start
    return violation(CLAIM, summary, [first, second, *around(history, [first.process], first.queued, end)], end)
