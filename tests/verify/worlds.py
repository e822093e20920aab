"""Histories of a correct lock, made by Hypothesis, and what one fault of the lock turns each into.

The engine is a few lines here: it grants in the order of arrival, counts tokens, and lets a hold
run out one ttl after its last proof of life. Clients are slow, stop, die and lose answers as they
like. Whatever they do, the history of such a lock must raise no alarm.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import strategies as st

from holdfast.verify.history import Call, Fault, History, Note, Outcome, Record
from tests.verify.told import call

TTL, MARGIN = 4.0, 0.1


@dataclass
class Turn:
    """One client's wish, and how it goes on about it."""

    asks: float
    holds: float
    answer_after: float
    release_takes: float
    fate: str
    """fine, stops (past its ttl), dies, unanswered (it dies before), silent (its release is not answered)"""
    mode: str


durations = st.floats(0.001, 2.0, allow_nan=False)
turns = st.builds(
    Turn,
    asks=st.floats(0.0, 20.0),
    holds=durations,
    answer_after=st.floats(0.0005, 0.5),
    release_takes=st.floats(0.0005, 0.5),
    fate=st.sampled_from(["fine", "fine", "fine", "stops", "dies", "unanswered", "silent"]),
    mode=st.sampled_from(["exclusive", "exclusive", "shared"]),
)
worlds = st.lists(turns, min_size=2, max_size=12)


def play(plan: list[Turn]) -> History:
    """Run the plan against a correct lock, and record it."""
    records: list[Record] = []
    free_for_writer, free_for_reader, last_grant, line_free = 0.0, 0.0, 0.0, 0.0
    for token, turn in enumerate(sorted(plan, key=lambda each: each.asks), 1):
        process = f"c{token}"
        arrived = turn.asks + turn.answer_after / 2
        # In the order of arrival: not before anybody who came earlier was granted.
        granted = max(arrived, line_free, free_for_reader if turn.mode == "shared" else free_for_writer)
        over = _record(records, process, token, turn, arrived, granted)
        last_grant = line_free = granted
        free_for_writer = max(free_for_writer, over)
        if turn.mode == "exclusive":
            free_for_reader = max(free_for_reader, over)
    assert last_grant >= 0
    end = free_for_writer + 10
    records += [Note("heal", end - 9, {"within": 5.0}), Note("end", end)]
    records.append(call("inspect", "judge", end + 1, end + 1.1, value={"holders": [], "waiters": []}))
    return History.of(records)


def _record(records: list[Record], process: str, token: int, turn: Turn, arrived: float, granted: float) -> float:
    """What this client has on record; returns when the lock was free of it."""
    answered = granted + turn.answer_after / 2
    deadline = granted + TTL - MARGIN
    queued = arrived + 0.0001 if granted > arrived + 0.0002 else None
    asked = call("acquire", process, turn.asks, None, "unknown", mode=turn.mode, claim=f"x{token}")
    if turn.fate == "unanswered":
        records += [asked, Fault("kill", process, answered)]
        return granted + TTL
    records.append(
        replace(asked, end=answered, outcome="ok", token=token, deadline=deadline, queued=queued, details={})
    )
    if turn.fate == "dies":
        records.append(Fault("kill", process, answered + turn.holds / 2))
        return granted + TTL
    if turn.fate == "stops":
        woke = granted + TTL + turn.holds
        records.append(Fault("pause", process, answered + 0.0001, woke))
        records.append(call("lost", process, woke + 0.01, woke + 0.01, claim=f"x{token}", deadline=deadline))
        records.append(_release(process, token, woke + 0.02, woke + 0.03, "failed"))
        return granted + TTL
    let_go = min(answered + turn.holds, deadline)
    done = let_go + turn.release_takes
    if turn.fate == "silent":
        records.append(_release(process, token, let_go, None, "unknown"))
        return granted + TTL
    records.append(_release(process, token, let_go, done, "ok"))
    return let_go + turn.release_takes / 2


def _release(process: str, token: int, start: float, end: float | None, outcome: Outcome) -> Call:
    return call("release", process, start, end, outcome, claim=f"x{token}")
