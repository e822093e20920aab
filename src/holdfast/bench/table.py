"""The lock table alone: transitions a second on one core, in memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.bench.measure import Figures, Slice
from holdfast.bench.ours import Ours
from holdfast.bench.plan import Plan
from holdfast.bench.subject import Subject
from holdfast.core.table import Dictionary, apply
from holdfast.core.table.commands import Command, Enter, Open, Release
from holdfast.core.table.rows import Session
from holdfast.model import Claim

NAMES = 1_000


class TableTransitions:
    """Claims that enter and are released, uncontended. CPU seconds, because it is a claim about one core."""

    group = "table"
    repeats = True
    case = "in memory"

    def fits(self, subject: Subject) -> bool:
        return isinstance(subject, Ours)

    @contextmanager
    def open(self, subject: Subject, plan: Plan) -> Iterator[Slice]:
        yield lambda: transitions(plan.seconds)


def transitions(seconds: float) -> Figures:
    """Run steps for so many CPU seconds. Making the commands is the caller's work and not counted."""
    rows = Dictionary()
    apply(Open(Session("s", 10.0, 0.0)), 0.0, rows.answer, rows.put)
    claims = [Claim(f"s-{number}", "s", "s/t1", "lock", f"name-{number}") for number in range(NAMES)]
    commands: list[Command] = [step for claim in claims for step in (Enter(claim), Release(claim))]
    spent, done = 0.0, 0
    while spent < seconds:
        began = time.thread_time()
        for command in commands:
            apply(command, 1.0, rows.answer, rows.put)
        spent += time.thread_time() - began
        done += len(commands)
    return {"transitions_per_s": done / spent}
