"""Histories told by hand, one line a call. Times are seconds from the start of the story."""

from __future__ import annotations

import itertools
from typing import Any

from holdfast.verify.history import Call, Fault, History, Note, Outcome, Record, Run

_ids = itertools.count()


def call(op: str, process: str, start: float, end: float | None, outcome: Outcome = "ok", **facts: Any) -> Call:
    """Any call; its owner is its process unless told."""
    facts.setdefault("name", "k")
    facts.setdefault("owner", process)
    return Call(f"{process}.{next(_ids)}", op, process, start, end, outcome, **facts)


def held(process: str, start: float, end: float, token: int | None = None, **facts: Any) -> list[Call]:
    """An acquire that was answered at `start` and a release that began at `end`."""
    claim = facts.pop("claim", f"{process}-{next(_ids)}")
    asked = facts.pop("asked", start - 0.01)
    acquired = call("acquire", process, asked, start, claim=claim, token=token, **facts)
    return [acquired, call("release", process, end, end + 0.01, claim=claim, name=acquired.name, kind=acquired.kind)]


def wrote(process: str, start: float, end: float, value: str, outcome: Outcome = "ok", **facts: Any) -> Call:
    """A fenced write, unless told."""
    facts.setdefault("fenced", True)
    facts.setdefault("token", 1)
    if outcome == "failed":
        facts.setdefault("error", "StaleToken")
    return call("write", process, start, end, outcome, value=value, **facts)


def saw(process: str, start: float, end: float, *values: str, **facts: Any) -> Call:
    """A read of the protected set."""
    return call("read", process, start, end, value=list(values), fenced=True, **facts)


def history(*records: Record | list[Call], run: Run | None = None) -> History:
    """All of it together."""
    flat: list[Record] = [] if run is None else [run.begin(0.0)]
    for record in records:
        if isinstance(record, list):
            flat += record
        else:
            flat.append(record)
    return History.of(flat)


def pause(process: str, start: float, end: float) -> Fault:
    """A process was stopped and went on."""
    return Fault("pause", process, start, end)


def healed(at: float, within: float) -> Note:
    """The last fault was over."""
    return Note("heal", at, {"within": within})
