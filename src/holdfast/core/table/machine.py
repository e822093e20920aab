"""The lock table's one entrance.

`apply(command, now)` is a generator: it yields questions about the table, is sent the answers,
and returns an `Outcome`. It never reads a clock or anything else by itself, so the same
commands at the same times give the same table.

Whoever drives it applies `changes` in order (those decided so far *before* answering the next
question, so that a step sees what it did itself), makes them durable, and only then lets the
reply and the notices out.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.table import cells, commands, hands, lines, sessions, views
from holdfast.core.table.changes import Change
from holdfast.core.table.commands import Command, Notice, Reply
from holdfast.core.table.questions import Question
from holdfast.core.table.step import UNBOUNDED, UNCOUNTED, Bounds, Meter, Step


@dataclass(slots=True)
class Outcome:
    """What a step came to."""

    reply: Reply
    changes: list[Change]
    notices: list[Notice]
    rest: list[commands.PassOn | commands.PassOnBelow] = field(default_factory=list)
    """What the bounds left to later steps."""


_STEPS: dict[type, Callable[[Step, Any], Generator[Question, Any, Reply]]] = {
    commands.Open: sessions.open_session,
    commands.Renew: sessions.renew,
    commands.Close: sessions.close,
    commands.Sweep: sessions.sweep,
    commands.Enter: lines.enter,
    commands.Look: lines.look,
    commands.OwnClaims: sessions.own_claims,
    commands.Release: lines.release,
    commands.Leave: lines.leave,
    commands.HandOver: hands.hand_over,
    commands.Adopt: hands.adopt,
    commands.Break: hands.break_lock,
    commands.Inspect: views.inspect,
    commands.List: views.list_locks,
    commands.Subscribe: views.subscribe,
    commands.Unsubscribe: views.unsubscribe,
    commands.Fetch: views.fetch,
    commands.CellGet: cells.get,
    commands.CellSet: cells.put,
    commands.RaiseTokens: cells.raise_tokens,
    commands.PassOn: lines.pass_on_rest,
    commands.PassOnBelow: lines.pass_on_below,
}

READS = frozenset({commands.Look, commands.OwnClaims, commands.Inspect, commands.List, commands.CellGet})
"""Commands that never change anything: a store may run them without its write lock."""


def begin(
    command: Command,
    now: float,
    wall: float = 0.0,
    buckets: int = 1,
    bounds: Bounds = UNBOUNDED,
    meter: Meter = UNCOUNTED,
) -> tuple[Step, Generator[Question, Any, Reply]]:
    """A step to be driven by hand: for a store that has to be awaited, or one that continues steps later."""
    step = Step(now, wall, buckets, bounds, meter)
    return step, _STEPS[type(command)](step, command)


def apply(
    command: Command,
    now: float,
    answer: Callable[[Question, float], Any],
    put: Callable[[Change], None],
    *,
    wall: float = 0.0,
    buckets: int = 1,
    bounds: Bounds = UNBOUNDED,
    meter: Meter = UNCOUNTED,
) -> Outcome:
    """Run one step on a store that answers at once and takes changes as they are decided."""
    step = Step(now, wall, buckets, bounds, meter)
    generator = _STEPS[type(command)](step, command)
    changes = step.changes
    done = 0
    try:
        question = next(generator)
        while True:
            if done < len(changes):
                for change in changes[done:]:
                    put(change)
                done = len(changes)
            question = generator.send(answer(question, now))
    except StopIteration as stop:
        for change in changes[done:] if done else changes:
            put(change)
        return Outcome(stop.value, changes, step.notices, step.rest)
