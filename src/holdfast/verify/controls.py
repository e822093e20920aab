"""Runs that must fail. If the judge finds nothing wrong with them, it is the verifier that is broken.

They are small and before everything else, on the same target: clients whose mutex is none, and
clients that write without a fence while one of them is paused between its read and its write.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from holdfast.verify import history
from holdfast.verify.checkers import updates
from holdfast.verify.client import Config
from holdfast.verify.crew import Crew, Member
from holdfast.verify.history import Recorder
from holdfast.verify.naive_tokens import grants
from holdfast.verify.target import Target
from holdfast.verify.workloads.protected import PRIZE
from holdfast.verify.workloads.unfenced import Unfenced

NAIVE = "naive-tokens"
CLIENTS = 3
PAUSES = 6
"""How often a client is paused until an update is lost; mostly the first time does it."""


class Controls:
    """The control runs on one target, which is started and well."""

    def __init__(self, target: Target, config: Config, recorder: Recorder) -> None:
        self.target, self.recorder = target, recorder
        self.config = replace(config, seed=config.seed + 1)
        self._rng = random.Random(f"controls {config.seed}")

    def perform(self) -> None:
        """Run until the unfenced clients have lost an update, or were paused often enough."""
        crew = Crew(self.target, self.config, CLIENTS, proxied=False)
        try:
            crew.start()
            for _ in range(PAUSES):
                self._pause_one(crew)
                if self._lost():
                    break
            for member in crew.members:
                member.say("finish")
            _wait(lambda: all(member.done.is_set() for member in crew.members), 6 * self.config.ttl + 5.0)
        finally:
            crew.close()

    def _pause_one(self, crew: Crew) -> None:
        """Stop a client that has read and not yet written, until somebody else has had time to do both."""

        def between() -> list[Member]:
            return [member for member in crew.members if crew.holding(member) >= PRIZE]

        _wait(lambda: bool(between()), 5 * self.config.ttl)
        found = between()
        if not found:
            return
        victim = self._rng.choice(found)
        victim.send(signal.SIGSTOP)
        fault = self.recorder.fault("pause", victim.name, fault="pause-client", control=Unfenced.name)
        time.sleep(self.config.ttl * 1.9)
        victim.send(signal.SIGCONT)
        self.recorder.undo(fault)
        time.sleep(self.config.ttl / 4)

    def _lost(self) -> bool:
        seen = history.read(Path(self.config.folder) / Unfenced.name)
        return updates.check_unfenced(seen).state == "broken"


def write_naive(recorder: Recorder, seed: int) -> None:
    """The history of the control that needs no servers."""
    for call in grants(seed):
        recorder.write(call)


def _wait(condition: Callable[[], bool], within: float) -> None:
    """Wait for a condition; it is no harm here if it does not come true."""
    until = time.monotonic() + within
    while not condition() and time.monotonic() < until:
        time.sleep(0.005)
