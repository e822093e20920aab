"""When each grant of a history was held, as its holder could know it.

A hold counts from the *end* of its acquire: before that nobody acts under it. It counts until the
holder stops relying on it, or can no longer be known to: everything here errs towards a shorter
hold, so that two holds that overlap did overlap.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.verify.history import GRANTING, RELEASING, Call, History

DEADLY = frozenset({"kill", "clock"})
"""Faults that end a process. One whose clock is moved is started anew under the other clock."""
FOREVER = float("inf")


@dataclass(frozen=True, slots=True)
class Hold:
    """One claim while it was held: `start` up to, but not at, `end`."""

    call: Call
    """The acquire that was answered first."""
    start: float
    end: float
    ended_by: Call | None
    """What ended it; None: its deadline, its holder's death, or nothing more is known of it."""

    @property
    def lasted(self) -> bool:
        """Whether it was held at all: a grant may be over by the time that its answer is read."""
        return self.end > self.start


def spaces(kind: str) -> str:
    """The key space of a kind: locks and reader-writer locks share one."""
    return "lock" if kind == "rwlock" else kind


def holds(history: History) -> list[Hold]:
    """Every hold, in the order in which they began."""
    by_claim: dict[tuple[str, str], list[Call]] = defaultdict(list)
    closes: dict[str, list[Call]] = defaultdict(list)
    adopted: dict[str, Call] = {}
    for call in history.calls:
        if call.claim:
            by_claim[call.process, call.claim].append(call)
        if call.op == "close":
            closes[call.process].append(call)
        if call.op == "adopt" and call.source:
            # A repeat of an adopt changes nothing any more.
            adopted.setdefault(call.source, call)
    ended = deaths(history)
    breaks = [call for call in history.calls if call.op == "break" and call.force]
    found = []
    for (process, claim), calls in by_claim.items():
        outside: list[Call] = [*closes[process], *breaks]
        if claim in adopted:
            outside.append(adopted[claim])
        hold = _hold(calls, outside, ended.get(life(calls[0]), FOREVER))
        if hold is not None and hold.lasted:
            found.append(hold)
    return sorted(found, key=lambda hold: hold.start)


def life(call: Call) -> str:
    """Which life of its process made a call: one that was killed comes back under its old name."""
    return call.id.rpartition(".")[0]


def deaths(history: History) -> dict[str, float]:
    """When each life that has ended was last heard of. When exactly it was killed is noted too late, or not at all."""
    heard: dict[str, float] = defaultdict(float)
    lives: dict[str, list[str]] = defaultdict(list)
    for call in history.calls:
        heard[life(call)] = max(heard[life(call)], call.start, call.end or 0.0)
        if life(call) not in lives[call.process]:
            lives[call.process].append(life(call))
    ended = {earlier for each in lives.values() for earlier in each[:-1]}
    for fault in history.faults:
        ended |= {each for each in lives[fault.target][-1:] if fault.what in DEADLY and fault.start >= heard[each]}
    return {each: heard[each] for each in ended}


def _hold(calls: list[Call], outside: list[Call], death: float) -> Hold | None:
    """The hold of one claim, given all calls that name it and all else that may have ended it."""
    granted = [call for call in calls if call.op in GRANTING and call.ok and call.end is not None]
    if not granted:
        return None
    first = min(granted, key=lambda call: call.end or 0.0)
    assert first.end is not None
    start = first.end
    known = _known_until(start, calls)
    ends: list[tuple[float, Call | None]] = [
        (call.start if call.deadline is None else min(call.start, call.deadline), call)
        for call in calls
        if call.op == "lost"
    ]
    ends += [(record.start, record) for record in outside if record.start >= start and _concerns(record, first)]
    releases = sorted((call for call in calls if call.op in RELEASING), key=lambda call: call.start)
    if len(releases) >= len(granted):
        last = releases[len(granted) - 1]
        ends.append((last.start if last.ok else min(last.start, max(known, _promised(calls, last))), last))
    if not any(isinstance(by, Call) and (by.op == "lost" or (by.op in RELEASING and by.ok)) for _, by in ends):
        deadlines = [call.deadline for call in calls if call.deadline is not None]
        ends.append((min(max([known, *deadlines]), death), None))
    end, by = min(ends, key=lambda each: each[0])
    return Hold(first, start, end, by)


def _known_until(start: float, calls: Iterable[Call]) -> float:
    """The last moment at which the holder certainly found its grant valid."""
    # A process may be stopped right after its look: that the grant was valid is known of the start only.
    return max([start, *(call.start for call in calls if call.op == "check" and call.ok)])


def _promised(calls: Iterable[Call], release: Call) -> float:
    """Until when a hold whose release did not go well was certainly held: nothing is known but that it was lost."""
    if release.outcome == "failed":
        return float("-inf")
    return max((call.deadline for call in calls if call.deadline is not None), default=float("-inf"))


def _concerns(record: Call, held: Call) -> bool:
    """Whether what happened outside ends this hold."""
    if record.op == "adopt":
        return True
    if record.op == "break":
        return record.name == held.name and spaces(record.kind) == spaces(held.kind)
    return not record.owner or record.owner == held.owner
