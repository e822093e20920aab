"""A lock server whose time of day is set while it works, as by an operator or a time server."""

from __future__ import annotations

import random

from holdfast.verify.faults.clock_jump import JUMP
from holdfast.verify.faults.fault import Fault, Scene, Strike
from holdfast.verify.servers.lock_server import LockServer
from holdfast.verify.target import Target


class ServerClockJump(Fault):
    """It jumps a day ahead or a day back, and returns later: nothing that is held may depend on it.

    In the server's own process, for everything that is written in Python. That is all of the lock server, and
    nothing of the others.
    """

    name = "server-clock-jump"
    what = "clock"
    side = "server"
    needs = frozenset({"clock"})

    def refusal(self, target: Target) -> str:
        able = any(isinstance(server, LockServer) for server in target.servers)
        return "" if able else "only the lock server's time of day can be set without setting the machine's"

    def length(self, ttl: float, rng: random.Random) -> float:
        # A ttl need not pass: a clock that counted by the time of day has seen a thousand of them at once.
        return rng.uniform(0.3, 1.0)

    def begin(self, scene: Scene) -> Strike | None:
        free = [
            server
            for server in scene.target.servers
            if isinstance(server, LockServer) and id(server) not in scene.taken and server.running
        ]
        # It lasts for less than a second: over before there is a session, it would have shown nothing.
        if not free or not scene.busy():
            return None
        leader = scene.target.leader()
        server = leader if leader in free and scene.rng.random() < 0.5 else scene.rng.choice(free)
        assert isinstance(server, LockServer)
        by = scene.rng.choice((JUMP, -JUMP))
        server.jump(by)
        number = scene.target.servers.index(server) + 1
        return Strike(f"{server.name}-{number}", lambda: server.jump(0), [server], {"by": by})
