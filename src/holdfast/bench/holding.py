"""What it costs to hold many locks and do nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.bench.measure import Figures, Slice
from holdfast.bench.ours import Ours
from holdfast.bench.plan import Plan
from holdfast.bench.subject import Subject
from holdfast.bench.worker_process import WorkerProcess


class Holding:
    """Many locks, held by one client in a process of its own."""

    group = "holding"
    repeats = False  # it counts requests and threads, and a heartbeat takes its time

    def __init__(self, locks: int) -> None:
        self.locks = locks
        self.case = f"{locks:,} locks"

    def fits(self, subject: Subject) -> bool:
        return isinstance(subject, Ours)

    @contextmanager
    def open(self, subject: Subject, plan: Plan) -> Iterator[Slice]:
        def measure_once() -> Figures:
            with WorkerProcess("hold", subject, {"locks": self.locks, "watch": plan.watch}) as worker:
                figures: Figures = worker.hear("done")["figures"]
            return figures

        yield measure_once
