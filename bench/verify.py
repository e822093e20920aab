"""What recording costs a live run: the same clients with and without a history, in turns, on one engine.

    python -m bench.verify [TARGET] [SECONDS] [ROUNDS]

The figure is the median over the rounds of turns with a history to turns without one. Rounds take
turns, because a machine that is busy for a while slows both.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from holdfast.verify.client import Config
from holdfast.verify.crew import Crew
from holdfast.verify.servers.process import wait_until
from holdfast.verify.target import Target
from holdfast.verify.targets import make_target
from holdfast.verify.workloads import WORKLOADS

CLIENTS = 4


def turns(target: Target, config: Config, seconds: float) -> float:
    """How many turns all clients made in a second."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-verify-") as name:
        folder = Path(name)
        for workload in config.workloads:
            (folder / workload).mkdir()
            WORKLOADS[workload].prepare(name)
        crew = Crew(target, replace(config, folder=name), CLIENTS, proxied=False)
        try:
            crew.start()
            before, began = _count(crew), time.monotonic()
            time.sleep(seconds)
            return (_count(crew) - before) / (time.monotonic() - began)
        finally:
            crew.close()


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
            ratios = []
            for _ in range(int(rounds)):
                without = turns(target, replace(config, recorded=False), float(seconds))
                with_ = turns(target, config, float(seconds))
                ratios.append(with_ / without)
                print(f"{with_:8.0f} turns/s recorded, {without:8.0f} not: {ratios[-1]:.3f}")
            print(f"median {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
