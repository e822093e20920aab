"""Uncontended pairs: acquire and release, every caller on a name of its own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from holdfast.bench.measure import Figures, Slice
from holdfast.bench.plan import Plan
from holdfast.bench.subject import Subject, Taker, TaskTaker

now = time.perf_counter


def rate(pairs: int, began: float, ended: float) -> Figures:
    """Pairs a second."""
    return {"pairs_per_s": pairs / (ended - began)}


def pair_up(taker: Taker, until: float) -> int:
    """Acquire and release until the time is over; how many pairs that were."""
    acquire, release = taker.acquire, taker.release
    pairs = 0
    while now() < until:
        acquire()
        release()
        pairs += 1
    return pairs


async def pair_up_in_task(taker: TaskTaker, until: float) -> int:
    """The same in a task."""
    acquire, release = taker.acquire, taker.release
    pairs = 0
    while now() < until:
        await acquire()
        await release()
        pairs += 1
    return pairs


class ThreadPairs:
    """Pairs by blocking callers, a thread each."""

    group = "pairs"
    repeats = True

    def __init__(self, callers: int) -> None:
        self.callers = callers
        self.case = f"blocking, {callers} thread{'s' if callers > 1 else ''}"

    def fits(self, subject: Subject) -> bool:
        return True

    @contextmanager
    def open(self, subject: Subject, plan: Plan) -> Iterator[Slice]:
        connection = subject.connect()
        takers = [connection.taker(f"pair-{number}") for number in range(self.callers)]
        try:
            with ThreadPoolExecutor(self.callers) as threads:
                list(threads.map(lambda taker: pair_up(taker, now() + 0.01), takers))
                yield lambda: self._slice(threads, takers, plan.seconds)
        finally:
            connection.close()

    def _slice(self, threads: ThreadPoolExecutor, takers: Sequence[Taker], seconds: float) -> Figures:
        if self.callers == 1:
            # In the calling thread: what one caller pays, without another thread beside it.
            began = now()
            return rate(pair_up(takers[0], began + seconds), began, now())
        together = threading.Barrier(self.callers)

        def start(taker: Taker) -> int:
            together.wait()
            return pair_up(taker, now() + seconds)

        began = now()
        return rate(sum(threads.map(start, takers)), began, now())


class TaskPairs:
    """Pairs by tasks of one event loop."""

    group = "pairs"
    repeats = True

    def __init__(self, callers: int) -> None:
        self.callers = callers
        self.case = f"asyncio, {callers} task{'s' if callers > 1 else ''}"

    def fits(self, subject: Subject) -> bool:
        return subject.has_tasks

    @contextmanager
    def open(self, subject: Subject, plan: Plan) -> Iterator[Slice]:
        with asyncio.Runner() as runner:
            connection = runner.run(subject.connect_tasks())
            takers = [connection.taker(f"pair-{number}") for number in range(self.callers)]
            try:
                runner.run(self._slice(takers, 0.01))
                yield lambda: runner.run(self._slice(takers, plan.seconds))
            finally:
                runner.run(connection.close())

    async def _slice(self, takers: Sequence[TaskTaker], seconds: float) -> Figures:
        began = now()
        done = await asyncio.gather(*(pair_up_in_task(taker, began + seconds) for taker in takers))
        return rate(sum(done), began, now())
