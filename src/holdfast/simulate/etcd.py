"""A simulated etcd: nodes on machines of their own that agree by majority, one of which leads and lets leases run out.

A model of what etcd does, not etcd: it knows what the lock server asks of it. It is as unkind as the real one. A leader
that was cut off goes on, for a while, renewing leases that its successor lets run out. A request that could not be
carried out may be when a majority is back. A new leader gives every lease its full ttl.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from holdfast.engines.etcd.http2 import CallFailed
from holdfast.engines.etcd.messages import message
from holdfast.engines.etcd.wire import (
    COMPACT,
    FAILED_PRECONDITION,
    LEASE_GRANT,
    LEASE_KEEP_ALIVE,
    LEASE_REVOKE,
    NOT_FOUND,
    RANGE,
    TXN,
    Request,
)
from holdfast.runtime.simulated import Machine
from holdfast.simulate.etcd_keys import Keys
from holdfast.simulate.network import Network

Answer = Callable[[Any], None]
"""Takes a reply, or the CallFailed that etcd answers with."""

NODES = ("etcd1", "etcd2", "etcd3")
TICK = 0.25
"""Seconds between two looks of etcd at itself."""
ELECTION = 1.0
"""For how long there is no leader before another one is elected, at least; at most twice as long."""
COMMIT = 0.004
"""The longest that a majority takes to agree."""
_Header, _Kept, _Granted = map(message, ("Header", "LeaseKeepAliveResponse", "LeaseGrantResponse"))
_Revoked, _Compacted = message("LeaseRevokeResponse"), message("CompactionResponse")
_Txn = message("TxnRequest")


@dataclass
class Lease:
    """What keys hang on."""

    ttl: int
    expires_at: float
    """On the clock of the node that leads."""


@dataclass
class Node:
    """One node: whom it takes for the leader, and in which term."""

    machine: Machine
    leader: int = 0
    term: int = 1
    known: dict[int, int] = field(default_factory=dict)
    """The leases that it knew of when it last heard the leader, and how long they are."""
    majority_at: float = 0.0
    """When it last heard a majority."""


class SimulatedEtcd:
    """All nodes, and what they have agreed on."""

    def __init__(self, network: Network, machines: dict[str, Machine]) -> None:
        self.network, self.world = network, network.world
        self.nodes = [Node(machines[name]) for name in NODES]
        self.keys = Keys()
        self.leases: dict[int, Lease] = {}
        self.leader, self.term = 0, 1
        self.watches: dict[object, tuple[bytes, Machine, Callable[[], None]]] = {}
        """By who watches: the key, where, and what is done there when it is written."""
        self._vacant_since: float | None = None
        self._waiting: list[Callable[[], None]] = []
        """What a leader without a majority may still carry out if it finds one in the same term."""
        self.world.at(self.world.time + TICK, self._tick)

    # Who leads

    def hears(self, one: int, other: int) -> bool:
        """Whether two nodes hear each other."""
        a, b = self.nodes[one].machine, self.nodes[other].machine
        up = not (a.dead or a.asleep or b.dead or b.asleep)
        return up and (one == other or not self.network.is_cut(a.name, b.name))

    def has_majority(self, node: int) -> bool:
        """Whether a node hears more than half of all, itself included."""
        return sum(self.hears(node, other) for other in range(len(self.nodes))) * 2 > len(self.nodes)

    def _tick(self) -> None:
        self.world.at(self.world.time + TICK, self._tick)
        if self.has_majority(self.leader):
            self._vacant_since = None
        elif self._vacant_since is None:
            self._vacant_since = self.world.time + self.world.random.uniform(0.0, ELECTION)
        elif self.world.time >= self._vacant_since + ELECTION:
            self._elect()
        for at, each in enumerate(self.nodes):
            if self.has_majority(at):
                each.majority_at = self.world.time
            if self.hears(at, self.leader):
                each.leader, each.term = self.leader, self.term
                each.known = {number: lease.ttl for number, lease in self.leases.items()}
        if self.has_majority(self.leader):
            waiting, self._waiting = self._waiting, []
            for carry_out in waiting:
                carry_out()
            self._let_run_out()

    def _elect(self) -> None:
        """Another node leads, if one has a majority; what the former one had not agreed on is gone."""
        able = [node for node in range(len(self.nodes)) if self.has_majority(node)]
        if able:
            self.leader, self.term, self._vacant_since = self.world.random.choice(able), self.term + 1, None
            self._waiting.clear()
            now = self.nodes[self.leader].machine.now()
            for lease in self.leases.values():
                lease.expires_at = now + lease.ttl

    def _let_run_out(self) -> None:
        now = self.nodes[self.leader].machine.now()
        for number in [number for number, lease in self.leases.items() if lease.expires_at <= now]:
            self._revoke(number)

    def _revoke(self, number: int) -> None:
        del self.leases[number]
        self.keys.remove(self.keys.under(number))
        self._tell()

    def _tell(self) -> None:
        """Let those who watch hear of what was written."""
        written, self.keys.written = set(self.keys.written), []
        for key, machine, hear in list(self.watches.values()):
            if key in written:
                self.network.carry(self.nodes[self.leader].machine, machine, hear, notice=True)

    # Requests

    def handle(self, node: int, request: Request, answer: Answer) -> None:
        """A request has arrived at a node."""
        if request.method == LEASE_KEEP_ALIVE:
            self._keep_alive(node, request.message.ID, answer)
            return
        agreed = partial(self._agreed, node, self.term, request, answer)
        self.world.at(self.world.time + self.world.random.uniform(0.0, COMMIT), agreed)

    def _keep_alive(self, node: int, number: int, answer: Answer) -> None:
        """The leader answers by itself, and so does one that has not heard yet that it is one no more."""
        asked = self.nodes[node]
        if not self.hears(node, asked.leader) or self._stepped_down(asked.leader):
            return
        lease, ttl = self.leases.get(number), 0
        now = self.nodes[self.leader].machine.now()
        if asked.term != self.term:
            # It has the leases of its time, whatever became of them.
            ttl = self.nodes[asked.leader].known.get(number, 0)
        elif lease is not None and lease.expires_at > now:
            ttl, lease.expires_at = lease.ttl, now + lease.ttl
        answer(_Kept(header=self._header(asked.term), ID=number, TTL=ttl))

    def _stepped_down(self, node: int) -> bool:
        """Whether a leader has been without a majority for so long that it calls itself none."""
        return self.world.time > self.nodes[node].majority_at + 2 * ELECTION

    def _agreed(self, node: int, term: int, request: Request, answer: Answer) -> None:
        """The moment at which a majority has it, if there is one; otherwise nobody is answered."""
        if not (self.hears(node, self.leader) and self.has_majority(self.leader)):
            if term == self.term and self.world.random.random() < 0.5:
                self._waiting.append(partial(self._agreed, node, term, request, lambda reply: None))
            return
        reply = self.carry_out(request)
        self._tell()
        answer(reply)

    def carry_out(self, request: Request) -> Any:
        """What the majority makes of a request."""
        method, asked = request.method, request.message
        if method == TXN:
            asked = _Txn.FromString(asked)
            leases = {step.request_put.lease for step in self.keys.compare(asked)[1]} - {0}
            if not leases <= self.leases.keys():
                return CallFailed(NOT_FOUND, "etcdserver: requested lease not found")
            reply = self.keys.transact(asked)
        elif method == RANGE:
            reply = self.keys.range(asked)
        elif method == LEASE_GRANT:
            if asked.ID in self.leases:
                return CallFailed(FAILED_PRECONDITION, "etcdserver: lease already exists")
            self.leases[asked.ID] = Lease(asked.TTL, self.nodes[self.leader].machine.now() + asked.TTL)
            reply = _Granted(ID=asked.ID, TTL=asked.TTL)
        elif method == LEASE_REVOKE:
            if asked.ID not in self.leases:
                return CallFailed(NOT_FOUND, "etcdserver: requested lease not found")
            self._revoke(asked.ID)
            reply = _Revoked()
        else:
            assert method == COMPACT, method
            # What was is never forgotten here.
            reply = _Compacted()
        reply.header.CopyFrom(self._header(self.term))
        return reply

    def _header(self, term: int) -> Any:
        return _Header(revision=self.keys.revision, raft_term=term)
