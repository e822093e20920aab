"""After healing things go on: nobody waits for a lock that nobody gets or holds.

From the note `heal` on, a lock must not stand still for longer than the note's `within` seconds
while somebody asks for it without a break. A lock that somebody validly holds is not still, and
one that is given up and asked for again within a second is asked for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from holdfast.verify.checkers.exclusion import related
from holdfast.verify.finding import Finding, Violation, found, violation
from holdfast.verify.history import GRANTING, Call, History, Note
from holdfast.verify.holds import deaths, holds, life, spaces

CLAIM = "progress"
BREATH = 1.0
"""A pause between two attempts that is still the same wish."""

Span = tuple[float, float]


def check(history: History) -> Finding:
    """Look for a lock that stood still."""
    heal = history.note("heal")
    if heal is None or "within" not in heal.details:
        return Finding(CLAIM, "not tested", why="no healing was noted")
    end = history.note("end")
    until = end.at if end is not None else history.span[1]
    within = float(heal.details["within"])
    ended = deaths(history)
    asked: dict[tuple[str, str], list[Call]] = defaultdict(list)
    for call in history.calls:
        if call.op in GRANTING and heal.at < _wanted_until(call, until, ended) and call.start < until:
            asked[spaces(call.kind), call.name].append(call)
    every = holds(history)
    busy: dict[tuple[str, str], list[Span]] = defaultdict(list)
    for hold in every:
        busy[spaces(hold.call.kind), hold.call.name].append((hold.start, hold.end))
    covering = [hold for hold in every if hold.call.subtree]
    violations: list[Violation] = []
    for key, calls in asked.items():
        wide = next((call for call in calls if call.subtree), None)
        kin = [hold for hold in (covering if wide is None else every) if related(hold.call, wide or calls[0])]
        wanted = [(max(call.start, heal.at), _wanted_until(call, until, ended)) for call in calls]
        given = [(call.end, call.end) for call in calls if call.ok and call.end is not None]
        moving = [*busy[key], *given, *((hold.start, hold.end) for hold in kin)]
        violations += [
            _told(heal, calls, start, end)
            for start, end in _still(_joined(wanted, BREATH), _joined(moving, 0.0))
            if end - start > within
        ]
    went_on = {key for key, calls in asked.items() if any(call.ok and (call.end or 0.0) > heal.at for call in calls)}
    if not violations and not went_on and until - heal.at < within:
        why = f"the run ended {until - heal.at:.1f} s after healing; progress is due within {within:g} s"
        return Finding(CLAIM, "not tested", why=why)
    return found(CLAIM, len(asked), violations, "nobody asked for a lock after healing")


def _wanted_until(call: Call, until: float, ended: dict[str, float]) -> float:
    """An unanswered call waits until its process has died, or until the end of the run."""
    return min(ended.get(life(call), until) if call.end is None else call.end, until)


def _still(wanted: list[Span], moving: list[Span]) -> Iterator[Span]:
    """The stretches in which the lock was wanted, and neither held nor given to anybody."""
    for begun, over in wanted:
        at = begun
        for start, end in [*moving, (over, over)]:
            if min(start, over) > at:
                yield at, min(start, over)
            at = max(at, min(end, over))


def _joined(spans: list[Span], gap: float) -> list[Span]:
    """Spans that overlap, or are at most `gap` apart, as one."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1] + gap:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def _told(heal: Note, calls: list[Call], start: float, end: float) -> Violation:
    waiting = [call for call in calls if call.start <= end and (call.end is None or call.end >= start)]
    name = waiting[0].name if waiting else calls[0].name
    summary = (
        f"nobody got {name!r} for {end - start:.1f} s, "
        f"{start - heal.at:.1f} s after healing, while {len(waiting)} asked for it"
    )
    return violation(CLAIM, summary, [heal, *waiting[:3]], end)
