"""What is done to clients and servers on purpose, and undone again."""

from __future__ import annotations

import random
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from holdfast.verify.crew import Crew, Member
from holdfast.verify.servers.process import Server
from holdfast.verify.target import Target

Undo = Callable[[], None]


@dataclass
class Scene:
    """Who is there to be hit. A victim is taken while something is done to it, so that two faults never meet in one."""

    target: Target
    crew: Crew
    ttl: float
    rng: random.Random
    taken: set[int] = field(default_factory=set)
    _sought: float | None = None
    """Since when a client that holds something has been looked for."""

    def client(self, *, exposed: bool = False) -> Member | None:
        """A client that nothing is done to now: the more it holds, the likelier."""
        free = [member for member in self._free() if member.exposed] if exposed else spared(self._free())
        if not free:
            return None
        # A fault says most where somebody holds something; where nobody does, it may as well hit anyone.
        weights = [0.2 + self.crew.holding(member) for member in free]
        return self.rng.choices(free, weights)[0]

    def stop_client(self) -> Member | None:
        """A client that was stopped while it held something. After a ttl in which nobody did, one that does not.

        None: not yet. Those that wait behind a holder that is stopped already hold nothing for as long as a ttl.
        """
        patient = self._patient()
        holders = spared([member for member in self._free() if self.crew.holding(member)])
        member = self.rng.choice(holders) if holders else None if patient else self.client()
        if member is None:
            return None
        member.stop()
        if patient and not self.crew.holding(member):
            # It let go before it was stopped.
            member.send(signal.SIGCONT)
            return None
        self._sought = None
        return member

    def busy(self) -> bool:
        """Whether some client holds something, or none did for a ttl: what strikes before that hits nothing."""
        if not any(self.crew.holding(member) for member in self.crew.members) and self._patient():
            return False
        self._sought = None
        return True

    def _patient(self) -> bool:
        """Whether a client that holds something is still worth waiting for."""
        self._sought = self._sought or time.monotonic()
        return time.monotonic() < self._sought + self.ttl

    def _free(self) -> list[Member]:
        return [member for member in self.crew.members if id(member) not in self.taken and member.running]

    def server(self) -> tuple[Server | None, bool]:
        """A server that nothing is done to now, and whether it leads: half of the time the leader, if there is one."""
        free = [server for server in self.target.servers if id(server) not in self.taken and server.running]
        leader, wanted = self.target.leader(), self.rng.random() < 0.5
        if wanted and leader is not None and leader in free:
            return leader, True
        if not free:
            return None, False
        # Another one was to be hit, and may lead all the same.
        chosen = self.rng.choice(free)
        return chosen, chosen is leader


def spared(members: list[Member]) -> list[Member]:
    """Those whose connections nothing can be done to, if there are any: the others are left to what can."""
    return [member for member in members if not member.exposed] or members


@dataclass
class Strike:
    """A fault that is under way."""

    victim: str
    undo: Undo
    taken: list[object]
    details: dict[str, Any] = field(default_factory=dict)


class Fault(ABC):
    """One thing that can go wrong. A new one is a file here and a row in the table."""

    name: ClassVar[str]
    what: ClassVar[str]
    """As the history calls it."""
    side: ClassVar[Literal["client", "server"]]
    needs: ClassVar[frozenset[str]] = frozenset()
    """What the target has to have made for it: `network`, `disk`, `wires`, `clock`."""

    @abstractmethod
    def refusal(self, target: Target) -> str:
        """Why it cannot be done to this target on this machine, once that is started; empty if it can."""

    def length(self, ttl: float, rng: random.Random) -> float:
        """For how long: mostly past the ttl, sometimes less."""
        return rng.uniform(0.2, 0.8) * ttl if rng.random() < 0.25 else rng.uniform(1.1, 1.7) * ttl

    @abstractmethod
    def begin(self, scene: Scene) -> Strike | None:
        """Do it; None if there is nobody left to do it to. NotAllowed if the machine refuses."""
