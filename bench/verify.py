"""What recording costs a live run: the same clients with and without a history, in turns, on one engine.

    python -m bench.verify [TARGET] [SECONDS] [ROUNDS]

Two figures, each the median over the rounds: turns a second with a history to turns without one, and
the same for the processor time that clients and servers need for a turn, which says more on a machine
that is busy with other things. Rounds take turns, because being busy for a while slows both.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from holdfast.verify.client import Config
from holdfast.verify.crew import Crew
from holdfast.verify.servers.process import family, wait_until
from holdfast.verify.target import Target
from holdfast.verify.targets import make_target
from holdfast.verify.workloads import WORKLOADS

CLIENTS = 4


def measure(target: Target, config: Config, seconds: float) -> tuple[float, float]:
    """How many turns all clients made in a second, and how much processor time each took of all processes."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-verify-") as name:
        folder = Path(name)
        for workload in config.workloads:
            (folder / workload).mkdir()
            WORKLOADS[workload].prepare(name)
        crew = Crew(target, replace(config, folder=name), CLIENTS, proxied=False)
        try:
            crew.start()
            pids = [*(member.pid for member in crew.members), *(server.pid for server in target.servers)]
            before, used, began = _count(crew), _used(pids), time.monotonic()
            time.sleep(seconds)
            made = _count(crew) - before
            return made / (time.monotonic() - began), (_used(pids) - used) / made
        finally:
            crew.close()


def _used(pids: list[int]) -> float:
    """The processor time of processes and of their children so far, in seconds."""
    ticks = 0
    for pid in (each for parent in pids for each in family(parent)):
        ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _count(crew: Crew) -> int:
    for member in crew.members:
        member.said.clear()
        member.say("count")
    wait_until(lambda: all(member.said for member in crew.members), 30.0, "every client counting its turns")
    return sum(int(member.said[0].split()[1]) for member in crew.members)


def main(name: str = "redis", seconds: str = "4", rounds: str = "5") -> None:
    """Measure, and print each round."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-verify-") as folder:
        target = make_target(name, Path(folder))
        with target.start():
            config = Config("", 0, "", target.ttl, folder, ("mutex", "line"), "", 1, "bench-verify")
            speeds, costs = [], []
            for _ in range(int(rounds)):
                speed, cost = measure(target, replace(config, recorded=False), float(seconds))
                recorded, cost_recorded = measure(target, config, float(seconds))
                speeds.append(recorded / speed)
                costs.append(cost_recorded / cost)
                print(f"{recorded:6.0f} turns/s recorded, {speed:6.0f} not: {speeds[-1]:.3f};", end=" ")
                print(f"{cost_recorded * 1e6:6.0f} µs of processor a turn, {cost * 1e6:6.0f} without: {costs[-1]:.3f}")
            print(f"median: speed {statistics.median(speeds):.3f}, processor time {statistics.median(costs):.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
