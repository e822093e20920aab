"""Hand-off to a waiter that sleeps: two processes alternate, and the lock is held for a while in between."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.bench.measure import Figures, Slice, percentile
from holdfast.bench.plan import Plan
from holdfast.bench.subject import Subject
from holdfast.bench.worker_process import WorkerProcess


class SleepingHandOff:
    """From the beginning of a release in one process to the grant in the other.

    The next one asks while the lock is held, and the holder goes on holding until the waiter
    is asleep; it does not ask again before the other has the lock, so that every hand-off counts.
    """

    group = "sleeping"
    repeats = True
    case = "2 processes"

    def fits(self, subject: Subject) -> bool:
        return subject.spans_processes

    @contextmanager
    def open(self, subject: Subject, plan: Plan) -> Iterator[Slice]:
        job = {"lock": "sleeping"}
        with WorkerProcess("alternate", subject, job) as one, WorkerProcess("alternate", subject, job) as other:
            one.hear("ready")
            other.hear("ready")
            yield lambda: self._slice(one, other, plan)

    def _slice(self, holder: WorkerProcess, waiter: WorkerProcess, plan: Plan) -> Figures:
        holder.say("take")
        holder.hear("asking")
        holder.hear("granted")
        gaps = []
        for _ in range(plan.hand_offs):
            waiter.say("take")
            waiter.hear("asking")
            time.sleep(plan.hold)
            holder.say("give")
            released = holder.hear("released")["at"]
            gaps.append((waiter.hear("granted")["at"] - released) * 1000)
            holder, waiter = waiter, holder
        holder.say("give")
        holder.hear("released")
        return {"p50_ms": percentile(gaps, 0.5), "p99_ms": percentile(gaps, 0.99)}
