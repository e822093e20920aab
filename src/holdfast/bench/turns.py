"""Waiters that take turns on one lock, and what their turns say."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple

from holdfast.bench.measure import Figures, percentile
from holdfast.bench.plan import Plan
from holdfast.bench.subject import Taker

# One clock for all processes of the machine.
now = time.monotonic


class Turn(NamedTuple):
    """One grant: when the waiter had it, and when it began to give it back."""

    granted: float
    released: float


def judge(turns: Sequence[Sequence[Turn]], stopped: float) -> Figures:
    """What a contest came to, from the turns of each waiter.

    It counts from the moment when everybody has had a first turn until it was stopped, so that
    neither the start of the last thread nor the end of the first says anything about fairness.
    """
    began = max((own[0].granted for own in turns if own), default=stopped)
    own_grants = [sum(began < turn.granted <= stopped for turn in own) for own in turns]
    grants = sum(own_grants)
    in_order = sorted(turn for own in turns for turn in own)
    gaps = [
        (later.granted - earlier.released) * 1000
        for earlier, later in pairwise(in_order)
        if began < later.granted <= stopped
    ]
    return {
        "grants_per_s": grants / (stopped - began) if stopped > began else 0.0,
        "p50_ms": percentile(gaps, 0.5),
        "p99_ms": percentile(gaps, 0.99),
        "max_over_mean": max(own_grants) * len(own_grants) / grants if grants else float("nan"),
        "fewest_grants": float(min(own_grants)),
    }


class Contest:
    """Waiters in threads of this process, each taking the lock again as soon as it has given it back."""

    def __init__(self, takers: Sequence[Taker]) -> None:
        self.turns: list[list[Turn]] = [[] for _ in takers]
        self._takers = takers
        self._stop = threading.Event()
        self._threads = ThreadPoolExecutor(len(takers))
        self._waiters: list[Future[None]] = []

    def start(self) -> None:
        for taker, turns in zip(self._takers, self.turns, strict=True):
            self._waiters.append(self._threads.submit(self._take_turns, taker, turns))

    def _take_turns(self, taker: Taker, turns: list[Turn]) -> None:
        while not self._stop.is_set():
            taker.acquire()
            granted = now()
            released = now()
            taker.release()
            turns.append(Turn(granted, released))

    def wait_until_met(self, plan: Plan) -> None:
        """Return when everybody has had a first turn, or when there is no use in waiting any longer."""
        self._wait(lambda: all(self.turns), 0.0, plan.patience)

    def wait_until_enough(self, plan: Plan) -> None:
        """Return when everybody had its share from now on, or when there is no use in waiting any longer."""
        shares = [len(own) + plan.grants for own in self.turns]

        def served() -> bool:
            # More than the share: a turn is noted after its release, and may have been granted before.
            return all(len(own) > share for own, share in zip(self.turns, shares, strict=True))

        self._wait(served, plan.seconds, plan.patience)

    def _wait(self, reached: Callable[[], bool], least: float, most: float) -> None:
        began = now()
        while now() < began + most and not any(waiter.done() for waiter in self._waiters):
            if now() >= began + least and reached():
                return
            time.sleep(0.005)

    def stop(self) -> None:
        """Let everybody finish its turn; raise what went wrong in any of them."""
        self._stop.set()
        self._threads.shutdown(wait=True)
        for waiter in self._waiters:
            waiter.result()
