"""For how long nothing is granted: a client that takes and gives back without a pause, and looks at the clock."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from typing import Self

import holdfast
from holdfast.errors import HoldfastError
from holdfast.verify.servers.process import wait_until

LONGEST = 60.0
BEFORE, AFTER = 50, 50
"""Grants before something is done, and after it."""


class Gap(threading.Thread):
    """Writes down when it was granted something."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._locks = holdfast.connect(url, ttl=60.0, app="bench")
        self._over = threading.Event()
        self._granted: list[float] = []
        self.errors: list[str] = []

    def run(self) -> None:
        lock = self._locks.lock("bench/probe")
        while not self._over.is_set():
            try:
                with lock:
                    self._granted.append(time.perf_counter())
            except HoldfastError as error:
                self.errors.append(str(error))

    def after(self, strike: Callable[[], None]) -> float:
        """The longest time between two grants around something that is done now."""
        wait_until(lambda: len(self._granted) >= BEFORE, LONGEST, "grants before")
        began, known = time.perf_counter(), len(self._granted)
        strike()
        # What it took to do may have been longer than the gap: grants of another leader count as soon as they come.
        wait_until(lambda: len(self._granted) >= known + AFTER and self._calm(), LONGEST, "grants after")
        moments = [began, *(moment for moment in list(self._granted) if moment > began)]
        return max(later - earlier for earlier, later in itertools.pairwise(moments))

    def _calm(self) -> bool:
        """Whether grants come one after the other again."""
        return self._granted[-1] - self._granted[-10] < 1.0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join(LONGEST)
        self._locks.close()
