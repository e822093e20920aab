"""What a checker found in a history."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from holdfast.verify.history import Call, Fault, History, Note, Record

State = Literal["kept", "broken", "not decided", "not tested"]

MOST_KEPT = 200
"""How many violations of one claim are kept for the report; all are counted."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A claim that did not hold, and the few records that show it."""

    claim: str
    summary: str
    records: tuple[Record, ...]
    """As few as prove it, in the order of their start."""
    at: float
    """The moment at which it was broken."""
    given: str = ""
    """The claim that the proof rests on: where that one may be broken, this shows nothing."""
    equal_tokens: bool = False
    """Whether two conflicting grants had the same token: two primaries that both grant can cause it."""

    @property
    def weight(self) -> tuple[int, float]:
        """How long the story is: records first, then seconds."""
        starts = [_start(record) for record in self.records] or [self.at]
        return len(self.records), max(starts) - min(starts)

    def as_dict(self) -> dict[str, Any]:
        """The same as plain data, for JSON."""
        return {"claim": self.claim, "summary": self.summary, "at": self.at, "story": story(self)}


@dataclass(frozen=True, slots=True)
class Finding:
    """The state of one claim in one history, with how much was looked at."""

    claim: str
    state: State
    checked: int = 0
    """How many facts could have broken it: pairs, grants, reads, whatever the claim is about."""
    violations: tuple[Violation, ...] = ()
    total: int = 0
    """How many violations there were, also those that are not kept here."""
    why: str = ""
    """Why it could not be decided, or was not tested."""

    @property
    def shortest(self) -> Violation | None:
        """The violation with the shortest story."""
        return min(self.violations, key=lambda each: (each.weight, each.at), default=None)


def found(
    claim: str, checked: int, violations: Iterable[Violation], why: str = "nothing of the kind was done"
) -> Finding:
    """Broken if there is a violation, kept if something was checked, otherwise not tested."""
    every = list(violations)
    if every:
        kept = sorted(every, key=lambda each: (each.weight, each.at))[:MOST_KEPT]
        return Finding(claim, "broken", checked, tuple(kept), len(every))
    return Finding(claim, "kept", checked) if checked else Finding(claim, "not tested", why=why)


def violation(
    claim: str,
    summary: str,
    records: Iterable[Record | None],
    at: float,
    given: str = "",
    *,
    equal_tokens: bool = False,
) -> Violation:
    """A violation, its records sorted and each told once."""
    known: dict[int, Record] = {id(record): record for record in records if record is not None}
    return Violation(claim, summary, tuple(sorted(known.values(), key=_start)), at, given, equal_tokens)


def around(history: History, processes: Iterable[str], start: float, end: float) -> list[Fault]:
    """The faults of these processes in this time: what may have led to it. Server faults are everybody's."""
    own = set(processes)
    return [
        fault
        for fault in history.faults
        if fault.start <= end
        and (fault.end is None or fault.end >= start)
        and (fault.target in own or fault.target not in history.processes)
    ]


def _start(record: Record) -> float:
    return record.at if isinstance(record, Note) else record.start


def story(broken: Violation, origin: float = 0.0) -> list[str]:
    """The violation as lines of text: starts and ends of its records, in the order in which they happened."""
    events: list[tuple[float, str]] = []
    for record in broken.records:
        match record:
            case Note():
                events.append((record.at, record.what))
            case Fault():
                events.append((record.start, f"FAULT {record.what} {record.target}"))
                if record.end is not None:
                    events.append((record.end, f"fault {record.what} {record.target} is over"))
            case Call():
                events += _told(record)
    lines = [f"{at - origin:10.4f}  {text}" for at, text in sorted(events, key=lambda event: event[0])]
    return [*lines, f"{broken.at - origin:10.4f}  => {broken.summary}"]


def _told(call: Call) -> list[tuple[float, str]]:
    what = f"{call.process} {call.op}" + (f" {call.name!r}" if call.name else "")
    if call.mode == "shared":
        what += " shared"
    answer: list[str] = [call.outcome]
    for label, fact in (
        ("token", call.token),
        ("slot", call.slot),
        ("value", call.value),
        ("expected", call.expected),
        ("version", call.version),
    ):
        if fact is not None:
            text = repr(fact)
            answer.append(f"{label}={text if len(text) <= 60 else text[:57] + '…'}")
    if call.error:
        answer.append(call.error)
    if call.end is None:
        return [(call.start, f"{what} … never answered")]
    if call.end - call.start < 0.0005:
        return [(call.start, f"{what} -> {' '.join(answer)}")]
    return [(call.start, f"{what} …"), (call.end, f"{what} -> {' '.join(answer)}")]
