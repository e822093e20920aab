"""Clients in virtual time, on a lock table in memory, in a world that cancels one task where the test says."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from holdfast.core import urls
from holdfast.engines.memory import MemoryEngine, MemoryTable
from holdfast.locks.client import Client
from holdfast.runtime.simulated import Task, World


class CancellingWorld(World):
    """A world that cancels its victim at the pause of this number, and `times - 1` pauses after it."""

    def __init__(self, seed: int, at_pause: int, times: int = 1) -> None:
        super().__init__(seed)
        self.victim: Task | None = None
        self.at_pause, self.left = at_pause, times

    def _step(self, task: Task) -> None:
        super()._step(task)
        if task is self.victim and not task.done and self.left and task.pauses >= self.at_pause:
            self.left -= 1
            self.cancel(task)


class Simulation:
    """One table and the clients that share it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.clients: list[Client] = []
        self.table = MemoryTable(now=lambda: world.time, wall=lambda: world.time)

    def client(self, ttl: float = 10.0) -> Client:
        """A client whose keeper is a task of the world."""
        engine: Any = MemoryEngine(urls.parse("memory://simulated"), "holdfast")

        def verbs() -> Any:
            return engine.simulated(self.world, self.table)

        def spawn(work: Coroutine[Any, Any, None]) -> Task:
            return self.world.spawn("keeper", work)

        client = Client(engine, verbs, verbs, spawn, ttl=ttl, namespace="holdfast", app="simulated")
        self.clients.append(client)
        return client

    def close(self) -> None:
        """Close every client, and let all that is left come to its end."""
        for client in self.clients:
            self.do(client.close())
        self.world.run()

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run something to its end."""
        return self.world.run_until_done(self.world.spawn("test", work))

    def pass_time(self, seconds: float) -> None:
        """Let the world go on."""
        self.world.run(self.world.time + seconds)

    def left_behind(self, client: Client) -> list[str]:
        """What the table keeps for a client: claims, and watches that nobody looks at."""
        if client.session is None:
            return []
        rows, session = self.table.rows, client.session.id
        claims = [
            f"{row.claim.kind} {row.claim.name} token={row.token}" for row in rows.by_session.get(session, {}).values()
        ]
        return claims + [f"watch {id_}" for owner, id_ in rows.watches if owner == session]
