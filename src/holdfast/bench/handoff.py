"""Contended hand-off: many waiters on one lock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from itertools import count

from holdfast.bench.measure import Figures, Slice
from holdfast.bench.plan import Plan
from holdfast.bench.subject import Connection, Subject
from holdfast.bench.turns import Contest, Turn, judge, now
from holdfast.bench.worker_process import WorkerProcess


def with_requests(figures: Figures, requests: int | None, turns: Sequence[Sequence[Turn]]) -> Figures:
    """The figures, and how many requests a grant cost if they were counted."""
    if requests is None:
        return figures
    return figures | {"requests_per_grant": requests / max(1, sum(map(len, turns)))}


def tell_all(workers: Sequence[WorkerProcess], heard: str, said: str) -> None:
    """Tell all of them something once every one has said something."""
    for worker in workers:
        worker.hear(heard)
    for worker in workers:
        worker.say(said)


class ThreadHandOff:
    """Waiters in threads of one process, which share a connection."""

    group = "handoff"
    repeats = True

    def __init__(self, waiters: int) -> None:
        self.waiters = waiters
        self.case = f"{waiters} threads"

    def fits(self, subject: Subject) -> bool:
        return True

    @contextmanager
    def open(self, subject: Subject, plan: Plan) -> Iterator[Slice]:
        connection = subject.connect()
        numbers = count()
        try:
            yield lambda: self._slice(connection, f"handoff-{next(numbers)}", plan)
        finally:
            connection.close()

    def _slice(self, connection: Connection, name: str, plan: Plan) -> Figures:
        contest = Contest([connection.taker(name) for _ in range(self.waiters)])
        before = connection.requests()
        contest.start()
        contest.wait_until_met(plan)
        contest.wait_until_enough(plan)
        stopped = now()
        contest.stop()
        after = connection.requests()
        requests = None if before is None or after is None else after - before
        return with_requests(judge(contest.turns, stopped), requests, contest.turns)


class ProcessHandOff:
    """Waiters spread over several processes."""

    group = "handoff"
    repeats = True

    def __init__(self, waiters: int, processes: int) -> None:
        assert waiters % processes == 0
        self.waiters, self.processes = waiters, processes
        self.case = f"{waiters} waiters in {processes} processes"

    def fits(self, subject: Subject) -> bool:
        return subject.spans_processes

    @contextmanager
    def open(self, subject: Subject, plan: Plan) -> Iterator[Slice]:
        numbers = count()
        yield lambda: self._slice(subject, f"crossing-{next(numbers)}", plan)

    def _slice(self, subject: Subject, name: str, plan: Plan) -> Figures:
        job = {"lock": name, "waiters": self.waiters // self.processes, "plan": asdict(plan)}
        with ExitStack() as stack:
            workers = [stack.enter_context(WorkerProcess("turns", subject, job)) for _ in range(self.processes)]
            for heard, said in (("ready", "start"), ("met", "count")):
                tell_all(workers, heard, said)
            for worker in workers:
                worker.hear("enough")
            stopped = now()
            for worker in workers:
                worker.say("stop")
            ends = [worker.hear("done") for worker in workers]
        turns = [[Turn(*turn) for turn in own] for end in ends for own in end["turns"]]
        counted = [end["requests"] for end in ends]
        return with_requests(judge(turns, stopped), None if None in counted else sum(counted), turns)
