"""A client whose clocks are far ahead of everybody else's."""

from __future__ import annotations

import functools
import random
import subprocess

from holdfast.verify.faults.fault import Fault, Scene, Strike
from holdfast.verify.target import Target

AHEAD = 86_400
"""By how many seconds: more than any ttl."""
STARTING = 2.0
"""Seconds that a client may take to start."""


@functools.cache
def why_not() -> str:
    """What keeps this machine from giving a process another clock; empty if nothing does."""
    try:
        done = subprocess.run(
            ["unshare", "--time", f"--boottime={AHEAD}", "--monotonic", str(AHEAD), "true"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        return "unshare is not installed: apt install util-linux"
    return f"time namespaces are not allowed: {done.stderr.strip()}" if done.returncode else ""


class Clock(Fault):
    """A client is started again in a time namespace, a day ahead: no client's clock may be part of the protocol."""

    name = what = "clock"
    side = "client"

    def refusal(self, target: Target) -> str:
        if target.name == "sqlite":
            return "the embedded engine refuses a file in another time namespace, so its clients share one clock"
        return why_not()

    def length(self, ttl: float, rng: random.Random) -> float:
        return STARTING + rng.uniform(0.5, 1.0) * ttl

    def begin(self, scene: Scene) -> Strike | None:
        member = scene.client()
        if member is None:
            return None
        member.kill()
        scene.crew.board.clear(member.config.place)
        prefix = ["unshare", "--fork", "--kill-child", "--time", f"--boottime={AHEAD}", f"--monotonic={AHEAD}"]
        member.start(shift=float(AHEAD), prefix=prefix)

        def back() -> None:
            member.kill()
            member.start()

        return Strike(member.name, back, [member], {"ahead": AHEAD})
