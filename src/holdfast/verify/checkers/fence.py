"""With a fence, accepted writes never go back in token: the older holder may act, but not on the resource.

The weaker sister of exclusion, and the one that a fenced resource needs: it holds also where two
holders were awake at once. Writes that overlap in time are ordered by the resource's own count
(`version`) if it has one, and are not compared otherwise; what was not answered is not compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from holdfast.verify.finding import Finding, Violation, around, found, violation
from holdfast.verify.history import Call, History

CLAIM = "fence"


def check(history: History) -> Finding:
    """Look for an accepted write below a token that the resource had accepted already."""
    writes = [
        call
        for call in history.calls
        if call.op == "write" and call.fenced and call.ok and call.token is not None and call.end is not None
    ]
    groups: dict[tuple[str, str, int | None], list[Call]] = defaultdict(list)
    for call in writes:
        groups[call.kind, call.name, call.slot].append(call)
    violations = [each for group in groups.values() for each in _steps_back(history, group)]
    return found(CLAIM, len(writes), violations, "nothing was written through a fence")


def _steps_back(history: History, writes: list[Call]) -> Iterator[Violation]:
    if all(call.version is not None for call in writes):
        writes = sorted(writes, key=lambda call: call.version or 0)
        highest = writes[0]
        for call in writes[1:]:
            if (call.token or 0) < (highest.token or 0):
                yield _told(history, highest, call)
            else:
                highest = call
        return
    # Without a count only those are ordered that do not overlap: sweep by start, admit by end.
    by_start = sorted(writes, key=lambda call: call.start)
    by_end = sorted(writes, key=lambda call: call.end or 0.0)
    over, top = 0, None
    for call in by_start:
        while over < len(by_end) and (by_end[over].end or 0.0) < call.start:
            if top is None or (by_end[over].token or 0) > (top.token or 0):
                top = by_end[over]
            over += 1
        if top is not None and (call.token or 0) < (top.token or 0):
            yield _told(history, top, call)


def _told(history: History, higher: Call, lower: Call) -> Violation:
    summary = (
        f"{lower.name!r} accepted a write of {lower.process} with token {lower.token} "
        f"after one of {higher.process} with token {higher.token}"
    )
    end = lower.end if lower.end is not None else lower.start
    faults = around(history, (higher.process, lower.process), higher.start, end)
    return violation(CLAIM, summary, [higher, lower, *faults], end)
