"""An fsync that fails: what was written may be gone, and whoever goes on as if it were not is wrong."""

from __future__ import annotations

import random
import shutil
from contextlib import ExitStack

from holdfast.verify.faults.fault import Fault, Scene, Strike
from holdfast.verify.servers.process import family
from holdfast.verify.syscalls import failing
from holdfast.verify.target import Target

CALLS = "fsync,fdatasync"


class Fsync(Fault):
    """System calls of the server, or of a client where the engine is in the client, fail with EIO for a while."""

    name = what = "fsync"
    side = "server"

    def refusal(self, target: Target) -> str:
        if shutil.which("strace") is None:
            return "strace is not installed: apt install strace"
        if not target.syncs:
            return "nothing of this target that the verifier could reach makes anything durable"
        return ""

    def length(self, ttl: float, rng: random.Random) -> float:
        return rng.uniform(0.3, 0.8) * ttl

    def begin(self, scene: Scene) -> Strike | None:
        target = scene.target
        if not target.servers:
            member = scene.client()
            if member is None:
                return None
            return self._fail(member.pid, [], member.name, member)
        server = target.servers[0]
        if id(server) in scene.taken or not server.running:
            return None
        pid, *others = family(server.pid)
        strike = self._fail(pid, others, f"{server.name}-1", server)
        undo = strike.undo

        def back() -> None:
            undo()
            server.relaunch()

        strike.undo = back
        return strike

    def _fail(self, pid: int, others: list[int], victim: str, taken: object) -> Strike:
        stack = ExitStack()
        stack.enter_context(failing(pid, CALLS, others=others))
        return Strike(victim, stack.close, [taken])
