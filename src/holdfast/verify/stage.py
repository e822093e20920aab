"""One run: a target, its clients at work, faults after a plan, then healing, and what is left at the end.

All workloads run at once, under the same faults. Each has a folder with the history of its own; what
the stage did is in one more file that belongs to all of them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import holdfast
from holdfast.verify.checkers import tokens
from holdfast.verify.client import Config
from holdfast.verify.controls import NAIVE, Controls, write_naive
from holdfast.verify.crew import Crew
from holdfast.verify.faults.fault import Fault, Scene
from holdfast.verify.history import Recorder, Run
from holdfast.verify.performance import STAGE, Performance
from holdfast.verify.schedule import plan
from holdfast.verify.storm import Storm
from holdfast.verify.target import Target
from holdfast.verify.workloads import CONTROLS, find_workload

WITHIN = 30.0
"""More than any engine needs, on a machine that is busy with something else too."""


@dataclass(frozen=True)
class Order:
    """What is to be run."""

    workloads: tuple[str, ...]
    faults: tuple[Fault, ...]
    seconds: float
    clients: int
    seed: int
    command: str = ""
    """The line that runs it again."""
    ttl: float | None = None
    within: float = WITHIN
    """How long after healing every client has to have come through."""
    controls: bool = True
    """Whether the runs that must fail are run too."""


class Stage:
    """Runs one order on one target, whose servers it starts."""

    def __init__(
        self, target: Target, order: Order, folder: Path, tell: Callable[[str], object] = lambda text: None
    ) -> None:
        self.target, self.order, self.tell = target, order, tell
        self.ttl = target.ttl if order.ttl is None else order.ttl
        self.within = max(order.within, 3 * self.ttl)
        self.namespace = f"verify-{order.seed % 10**9}"
        self.done = Performance(folder)
        self.rng = random.Random(f"stage {order.seed}")
        self.recorder = Recorder(folder, STAGE)
        self.recorders: dict[str, Recorder] = {}

    def perform(self) -> Performance:
        """Run it. The target is closed at the end, whatever happens."""
        wants = frozenset(need for fault in self.order.faults for need in fault.needs)
        self.tell(f"starting {self.target.shown}")
        with self.target.start(wants):
            faults = self._possible()
            self._try_ttl()
            with self._client() as client:
                self._choose_workloads(client)
                self._begin(client, faults)
            if self.order.controls:
                self.tell("controls: runs that must fail")
                Controls(self.target, self._config(tuple(CONTROLS)), self.recorder).perform()
                write_naive(self.recorders[NAIVE], self.order.seed)
            self._play(faults)
            self.tell("looking at what is left")
            with self._client() as client:
                self._look_for_leaks(client)
        for recorder in (self.recorder, *self.recorders.values()):
            recorder.close()
        return self.done

    def _client(self) -> holdfast.Client:
        url = self.target.url(self.target.addresses)
        return holdfast.connect(url, ttl=max(10.0, self.ttl), namespace=self.namespace, app="verify")

    def _try_ttl(self) -> None:
        """InvalidRequest if the engine serves no sessions as short as the clients' will be."""
        url = self.target.url(self.target.addresses)
        holdfast.connect(url, ttl=self.ttl, namespace=self.namespace, app="verify").close()

    def _possible(self) -> list[Fault]:
        """The faults that this target and machine allow; the others are not tested, and it is said why."""
        possible = []
        for fault in self.order.faults:
            reason = fault.refusal(self.target)
            if reason:
                self.done.not_tested[fault.name] = reason
            else:
                possible.append(fault)
        return possible

    def _choose_workloads(self, client: holdfast.Client) -> None:
        for name in self.order.workloads:
            reason = find_workload(name).refusal(client)
            if reason:
                self.done.not_tested[name] = reason
            else:
                self.done.workloads.append(name)

    def _begin(self, client: holdfast.Client, faults: Sequence[Fault]) -> None:
        order = self.order
        controls = {each.name: each.breaks for each in CONTROLS.values()} | {NAIVE: tokens.CLAIM}
        self.done.controls = list(controls) if order.controls else []
        for name in (*self.done.workloads, *self.done.controls):
            (self.done.folder / name).mkdir()
            if name != NAIVE:
                find_workload(name).prepare(str(self.done.folder))
            run = Run(
                target=self.target.shown, workload=name, seed=order.seed, command=order.command, ttl=self.ttl,
                faults=tuple(fault.name for fault in faults), guarantees=client.guarantees.as_dict(),
                control=controls.get(name, ""),
            )  # fmt: skip
            self.recorders[name] = Recorder(self.done.folder / name, STAGE)
            self.recorders[name].write(run.begin())

    def _config(self, workloads: tuple[str, ...]) -> Config:
        return Config(
            name="", place=0, url="", ttl=self.ttl, folder=str(self.done.folder), workloads=workloads, style="",
            seed=self.order.seed, namespace=self.namespace,
        )  # fmt: skip

    def _play(self, faults: Sequence[Fault]) -> None:
        """Let the clients work, do to them what was planned, heal, and let them come to their end."""
        order = self.order
        config = self._config(tuple(self.done.workloads))
        crew = Crew(self.target, config, order.clients, proxied=any(fault.side == "client" for fault in faults))
        try:
            crew.start()
            scene = Scene(self.target, crew, self.ttl, random.Random(f"scene {order.seed}"))
            storm = Storm(self.recorder, scene, self.tell)
            storm.rage(plan(faults, order.seconds, self.ttl, self.rng, self.target.lease), order.seconds)
            self.done.struck.update(storm.struck)
            self.done.not_tested.update(storm.not_tested)
            self.tell("healed: everybody has to come through once more")
            self.target.revive()
            self.recorder.note("heal", within=self.within)
            self._finish(crew)
        finally:
            crew.close()

    def _finish(self, crew: Crew) -> None:
        for member in crew.members:
            member.say("finish")
        until = time.monotonic() + self.within + 5.0
        while time.monotonic() < until and not all(member.done.is_set() for member in crew.members):
            if all(member.done.is_set() or not member.running for member in crew.members):
                break
            time.sleep(0.02)
        for member in crew.members:
            member.hear_out()
            if not member.done.is_set() and member.running:
                self.done.late.append(member.name)
            elif not member.done.is_set():
                self.done.surprises.append(f"{member} had ended: {tail(member.log)}")
            elif member.surprises:
                self.done.surprises.append(f"{member}: {tail(member.log)}")

    def _look_for_leaks(self, client: holdfast.Client) -> None:
        """Give sessions that were killed time to end; then look at what is left, and remove what was made."""
        names = [(workload, kind, name) for workload in self.done.workloads for kind, name in self._names(workload)]
        until = time.monotonic() + 2 * self.ttl + 5.0
        while time.monotonic() < until and any(who_is_left(client, kind, name) for _, kind, name in names):
            time.sleep(0.1)
        self.recorder.note("end")
        for workload, kind, name in names:
            recorder = self.recorders[workload]
            call = recorder.begin("inspect", name=name, kind=kind)
            left = who_is_left(client, kind, name)
            recorder.end(call, "ok", value=left or {"holders": [], "waiters": []})
        if "cell" in self.done.workloads:
            for _, name in find_workload("cell").names:
                client.cell(name).delete()

    @staticmethod
    def _names(workload: str) -> list[tuple[str, str]]:
        return [(kind, name) for kind, name in find_workload(workload).names if kind != "cell"]


def who_is_left(client: holdfast.Client, kind: str, name: str) -> dict[str, list[str]]:
    """Who holds or waits; empty if nobody does. What was just healed may still be choosing who leads."""
    until = time.monotonic() + WITHIN
    while True:
        try:
            info = client.inspect(name, kind=kind)
            break
        except holdfast.EngineUnavailable:
            if time.monotonic() >= until:
                raise
            time.sleep(0.1)
    if not info.holders and not info.waiters:
        return {}
    return {
        "holders": [party.claim for party in info.holders],
        "waiters": [party.claim for party in info.waiters],
    }


def tail(log: Path) -> str:
    """What a client wrote last."""
    return log.read_text()[-2000:].strip() if log.exists() else ""
