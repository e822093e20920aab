"""Nothing is left behind: after the end nobody holds anything or stands in line."""

from __future__ import annotations

from holdfast.verify.finding import Finding, found, violation
from holdfast.verify.history import GRANTING, Call, History

CLAIM = "leaks"


def check(history: History) -> Finding:
    """Look at what was inspected after the note `end`; of several looks at one name the last one counts."""
    end = history.note("end")
    if end is None:
        return Finding(CLAIM, "not tested", why="the end of the run was not noted")
    last: dict[tuple[str, str], Call] = {}
    for call in history.calls:
        if call.op == "inspect" and call.ok and call.start >= end.at:
            last[call.kind, call.name] = call
    violations = []
    for call in last.values():
        left = [(role, who) for role in ("holders", "waiters") for who in call.value.get(role, ())]
        if left:
            told = ", ".join(f"{who} {'holds' if role == 'holders' else 'waits for'} it" for role, who in left[:3])
            summary = f"{call.name!r} was not empty after the end: {told}"
            violations.append(violation(CLAIM, summary, [*_left_by(history, left), end, call], call.start))
    return found(CLAIM, len(last), violations, "nobody looked after the end")


def _left_by(history: History, left: list[tuple[str, str]]) -> list[Call]:
    """The acquires that left them, where the history knows."""
    text = " ".join(who for _, who in left).split()
    known = [call for call in history.calls if call.op in GRANTING and (call.claim in text or call.owner in text)]
    # Of an owner that made many, the last is the likely one.
    return list({call.owner: call for call in known}.values())
