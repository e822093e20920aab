"""Faults of a server's process: killed, paused, restarted. Half of the time it is the leader's."""

from __future__ import annotations

import random
from abc import abstractmethod

from holdfast.verify.faults.fault import Fault, Scene, Strike, Undo
from holdfast.verify.servers.process import Server
from holdfast.verify.target import Target

ENDING = 3.0
"""Seconds for an orderly stop."""


class ServerFault(Fault):
    """What is done to the process of one server."""

    side = "server"

    def refusal(self, target: Target) -> str:
        return "" if target.servers else "the verifier has not started any server of this target"

    def begin(self, scene: Scene) -> Strike | None:
        server, leads = scene.server()
        if server is None:
            return None
        number = scene.target.servers.index(server) + 1
        return Strike(f"{server.name}-{number}", self.spoil(server), [server], {"leader": True} if leads else {})

    @abstractmethod
    def spoil(self, server: Server) -> Undo:
        """Do it; what undoes it."""


class KillServer(ServerFault):
    """kill -9, and a new start some time later."""

    name = "kill-server"
    what = "kill"

    def spoil(self, server: Server) -> Undo:
        server.kill()
        return server.relaunch


class PauseServer(ServerFault):
    """SIGSTOP: connections stay open, nothing is answered."""

    name = "pause-server"
    what = "pause"

    def spoil(self, server: Server) -> Undo:
        server.pause()
        return server.resume


class RestartServer(ServerFault):
    """An orderly stop, and a new start at once; what has not ended after some seconds is killed.

    No other fault begins or ends meanwhile: a server that cannot end, as others are gone, must not hold up everything.
    """

    name = "restart-server"
    what = "restart"

    def length(self, ttl: float, rng: random.Random) -> float:
        return 0.0

    def spoil(self, server: Server) -> Undo:
        server.stop(ENDING)
        return server.relaunch
