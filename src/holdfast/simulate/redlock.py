"""Redlock in virtual time: the real recipe, on nodes that do in Python what its scripts do in Redis.

The nodes are models, so what is shown here is the recipe, not Redis. A test holds the models
against a real server, script by script.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from holdfast.core import quorum, urls
from holdfast.core.table.commands import GRANTED, Notice
from holdfast.engines.redlock.engine import RedlockEngine
from holdfast.engines.redlock.nodes import Answers, NoAnswer, Round
from holdfast.engines.redlock.verbs import AHEAD, RedlockVerbs
from holdfast.engines.resp.wire import Part, Request
from holdfast.runtime.simulated import Machine, Pause, SimulatedSignal, suspend
from holdfast.simulate.network import Exchange, Network, NetworkIo
from holdfast.simulate.simulation import Simulation
from holdfast.simulate.table_server import Disk

NODES = ("node1", "node2", "node3", "node4", "node5")
HOPED_AHEAD = 100_000
MAX_HOLD = b"it was held longer than max_hold"


@dataclass(slots=True)
class Held:
    """A lock on one node. Its own time is in ms, as the scripts have it."""

    claim: bytes
    who: bytes
    token: int
    since: int
    dies: int
    expires: float


class Node:
    """One Redis server, as far as Redlock's scripts use it."""

    repeatable = frozenset[type]()

    def __init__(self, machine: Machine, now: Callable[[], float] | None = None) -> None:
        self.machine = machine
        self._now = now or machine.now
        self.locks: dict[str, Held] = {}
        self.gone: dict[bytes, tuple[bytes, float]] = {}
        self.last = 0

    def now_ms(self) -> int:
        return int(self._now() * 1000)

    def find(self, lock: str) -> Held | None:
        """What holds this lock here, unless it has expired."""
        held = self.locks.get(lock)
        if held is not None and held.expires <= self._now() * 1000:
            del self.locks[lock]
            return None
        return held

    def reason(self, claim: bytes) -> bytes | None:
        """Why a claim is not to come back, while that is remembered."""
        found = self.gone.get(claim)
        return found[0] if found is not None and found[1] > self._now() * 1000 else None

    def handle(self, request: Request, sender: object, answer: Callable[[Any], None]) -> None:
        """Run a script."""
        answer(getattr(self, request.form.script.name)(*map(_text, request.args)))

    def redlock_enter(self, claim: str, lock: str, ttl: str, hoped: str, max_hold: str, who: str) -> list[Any]:
        id_, now, now_us = claim.encode(), self.now_ms(), int(self._now() * 1_000_000)
        reason = self.reason(id_)
        if reason is not None:
            return [b"gone", reason]
        held = self.find(lock)
        if held is not None and held.claim != id_:
            return [b"taken", held.claim, held.who, _number(held.token), _number(held.since)]
        if held is None:
            number = max(self.last + 1, now_us)
            if number < int(hoped) <= now_us + HOPED_AHEAD:
                number = int(hoped)
            self.last = number
            dies = now + int(max_hold) if int(max_hold) else 0
            held = self.locks[lock] = Held(id_, who.encode(), number, now, dies, 0.0)
        left = max(1, min(int(ttl), held.dies - now)) if held.dies else int(ttl)
        held.expires = self._now() * 1000 + left
        return [b"granted", _number(held.token), max(0, held.dies - now) if held.dies else -1]

    def redlock_confirm(self, claim: str, lock: str, token: str) -> int:
        held = self.find(lock)
        if held is None or held.claim != claim.encode() or held.token > int(token):
            return 0
        self.last = max(self.last, int(token))
        held.token = int(token)
        return 1

    def redlock_extend(self, ttl: str, *claims: str) -> list[Any]:
        return [self._extend(int(ttl), *pair) for pair in zip(claims[::2], claims[1::2], strict=True)]

    def _extend(self, ttl: int, claim: str, lock: str) -> int | bytes:
        reason, held, now = self.reason(claim.encode()), self.find(lock), self.now_ms()
        if reason is not None:
            return reason
        if held is None or held.claim != claim.encode():
            return 0
        if held.dies and held.dies <= now:
            return MAX_HOLD
        held.expires = self._now() * 1000 + (min(ttl, held.dies - now) if held.dies else ttl)
        return 1

    def redlock_release(self, remembered: str, *claims: str) -> list[Any]:
        groups = zip(claims[::3], claims[1::3], claims[2::3], strict=True)
        return [self._release(int(remembered), *group) for group in groups]

    def _release(self, remembered: int, claim: str, lock: str, unanswered: str) -> list[Any]:
        id_, held = claim.encode(), self.find(lock)
        reason, mine = self.reason(id_), held is not None and held.claim == id_
        if mine:
            del self.locks[lock]
        if unanswered == "1":
            self.gone[id_] = (b"it was withdrawn", self._now() * 1000 + remembered)
        return [int(mine), reason]

    def redlock_inspect(self, *locks: str) -> list[Any]:
        now, found = self.now_ms(), map(self.find, locks)
        return [
            None
            if held is None
            else [held.claim, held.who, _number(held.token), _number(held.since), _number(now - held.since)]
            for held in found
        ]


def _text(part: Part) -> str:
    return part.decode() if isinstance(part, bytes) else str(part)


def _number(number: int) -> bytes:
    return str(number).encode()


class NodesIo(NetworkIo):
    """Asks several nodes at once, each with a short limit."""

    def __init__(self, network: Network, machine: Machine, nodes: list[Node]) -> None:
        super().__init__(network, machine, nodes[0])
        self.nodes = nodes

    async def call(self, request: Round, until: float) -> Answers:
        limit = self.machine.moment(min(until, self.now() + request.limit))
        asked = range(len(self.nodes)) if request.nodes is None else sorted(request.nodes)
        answers: Answers = [NoAnswer("it was not asked", False)] * len(self.nodes)
        sent = {node: self.network.ask(self.machine, self.nodes[node], None, request.request) for node in asked}
        for node, exchange in sent.items():
            if not exchange.is_set():
                try:
                    await suspend(Pause(limit, exchange))
                finally:
                    exchange.task = None
            answers[node] = _answer(exchange)
        return answers


def _answer(exchange: Exchange) -> Any:
    if not exchange.is_set():
        return NoAnswer("no answer in time", True)
    if exchange.problem:
        return NoAnswer(exchange.problem, exchange.outcome == "unknown")
    return exchange.reply


class Bell(SimulatedSignal):
    """Where the keeper waits; it also wakes those who are due to try again."""

    __slots__ = ("_engine",)

    def __init__(self, engine: SimulatedRedlock) -> None:
        super().__init__(engine.simulation.world)
        self._engine = engine

    def try_at(self, claim_id: str, due: float) -> None:
        """Wake the waiter with this claim then."""
        machine = self._engine.machine
        wake = partial(self._wake, Notice("", claim_id, GRANTED))
        self._engine.simulation.world.at(machine.moment(due), wake, machine)

    def _wake(self, notice: Notice) -> None:
        self._engine.deliver(notice)

    def forget(self, claim_id: str) -> None:
        """A wake-up that nobody expects is not heard."""


class SimulatedRedlock(RedlockEngine):
    """Redlock's engine with its real verbs, on simulated nodes."""

    def __init__(self, simulation: RedlockWorld, machine: Machine) -> None:
        super().__init__(urls.parse(f"redlock://{','.join(NODES)}"), "holdfast")
        self.simulation, self.machine = simulation, machine
        self.bell = Bell(self)  # type: ignore[assignment]

    def hoped_token(self) -> int:
        return int(self.machine.now() * 1_000_000) + AHEAD

    def heard_token(self, token: int, hoped: int) -> None:
        """All clocks are the world's."""

    def verbs(self) -> RedlockVerbs:
        io = NodesIo(self.simulation.network, self.machine, self.simulation.nodes)
        return RedlockVerbs(self, io, self.bell)


class RedlockWorld(Simulation):
    """Five independent nodes instead of one lock manager."""

    def build(self, disk: Disk | None, manager_class: type[Any]) -> None:
        self.nodes: list[Node] = []
        for name in NODES:
            machine = self.machines[name] = Machine(self.world, name, self.rates.get(name, 1.0))
            self.nodes.append(Node(machine))

    def engine(self, machine: Machine) -> SimulatedRedlock:
        return SimulatedRedlock(self, machine)

    def queued(self, claim_id: str) -> float | None:
        """There is no line: whoever waits tries again."""
        return None

    def left_behind(self) -> list[tuple[str, str, list[str], list[str]]]:
        """Locks that a majority of the nodes still has."""
        left: list[tuple[str, str, list[str], list[str]]] = []
        for lock in sorted({lock for node in self.nodes for lock in node.locks}):
            holders = [held.claim.decode() for node in self.nodes if (held := node.find(lock)) is not None]
            for claim in sorted(set(holders)):
                if quorum.reached(holders.count(claim), len(self.nodes)):
                    kind, _, name = lock.partition(":")
                    left.append((kind, name, [claim], []))
        return left
