"""Lock servers as a cluster in virtual time: the real nodes, leases, log, snapshots and take-over, on a simulated etcd.

Real: all of `holdfast.server.cluster` but for the sockets to etcd, what the lock server has besides, and the client
that finds the leader. Simulated: etcd itself, the loops and the connections.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.core.table import Dictionary
from holdfast.core.table.commands import Command
from holdfast.engines.resp.wire import Address
from holdfast.runtime.simulated import Machine
from holdfast.server.cluster.keys import Keys
from holdfast.server.cluster.membership import Member
from holdfast.server.cluster.node import Node
from holdfast.server.cluster.store import ClusterStore
from holdfast.server.limits import Limits
from holdfast.server.service import About
from holdfast.server.store import Deposed
from holdfast.server.users import Users
from holdfast.simulate.etcd import NODES, SimulatedEtcd
from holdfast.simulate.etcd_client import EtcdClient
from holdfast.simulate.lock_server import LockServer, ServerWorld, WatchedCommands, WatchedService
from holdfast.simulate.loop import Running, SimulatedLoop
from holdfast.simulate.network import Network
from holdfast.simulate.table_server import Answer, Disk, forget_unkept

SERVERS = ("server1", "server2", "server3")
LEASE = 5
LOG_KIB = 2
"""So little log that a short story has several snapshots."""


Tell = Callable[[str, str], None]
"""Takes an event, and what is told of it."""


class Ordered(dict[Any, None]):
    """A set that is gone through in the order in which things came: that of a set is another in every process."""

    def add(self, thing: Any) -> None:
        self[thing] = None

    def discard(self, thing: Any) -> None:
        self.pop(thing, None)


class ClusterService(WatchedService):
    """Forgets, when it takes over, what places in line the judge has heard of and nobody was told."""

    told: Tell

    def begin(self) -> None:
        super().begin()
        forget_unkept(self.queued, self.table)
        self.told("leads", "leads from now on")

    def retire(self) -> None:
        super().retire()
        self.told("deposed", "leads no more")


class ClusterServer(LockServer):
    """One of several lock servers, on a machine of its own. It keeps nothing: what counts is in etcd."""

    def __init__(
        self, network: Network, machine: Machine, etcd: SimulatedEtcd, queued: dict[str, float], tell: Tell
    ) -> None:
        self._etcd, self._starts, self._shared, self._tell = etcd, 0, queued, tell
        super().__init__(network, machine)

    def start(self) -> None:
        self._starts += 1
        self.queued = self._shared
        self.loop = SimulatedLoop(self.world, self.machine)
        self.loop.failures = self.failures
        about = About("simulated", f"{self.machine.name}.{self._starts}", "etcd", durable=True, replicated=True)
        with Running(self.loop):
            etcd = EtcdClient(self._etcd, self.machine, self.loop)
            self.cluster = ClusterStore(etcd, Keys(), lease=LEASE, log_kib=LOG_KIB)
            self.service = ClusterService(self.cluster, self.loop.loop, Limits(), Users(), about, self._broken)
            self.service.queued, self.service.world, self.service.told = self.queued, self.world, self._tell
            ordered: Any = Ordered()
            self.service.connections = ordered
            member = Member(about.instance, f"{self.machine.name}:7420", "", about.version, 0.0)
            self.node = self.service.node = self.take_part(member)
        self.loop.create_task(self._run(self.node))
        self.commands = WatchedCommands(self.failures)

    def take_part(self, member: Member) -> Node:
        """Its part in the cluster. A broken server has another one."""
        return Node(self.cluster, self.service, member)

    async def _run(self, node: Node) -> None:
        try:
            await node.run()
        except Exception as error:  # noqa: BLE001 a server that is in no cluster is of no use: the run fails
            self.failures.append(error)

    def _broken(self, error: Exception) -> None:
        if isinstance(error, Deposed):
            self.node.deposed(error)
        else:
            self.failures.append(error)

    def crash(self) -> None:
        """Lose the power."""
        self.node.close()
        super().crash()

    def restart(self) -> None:
        """Come back, and follow."""
        self.machine.start()
        self.start()


class Managers:
    """All servers, as acts and judges see them: the one that leads, or that led last."""

    repeatable = frozenset[type]()
    unsynced = 0

    def __init__(self, servers: dict[str, ClusterServer], queued: dict[str, float]) -> None:
        self.servers, self.queued = servers, queued
        self._last = next(iter(servers.values()))
        self._crashed: list[ClusterServer] = []

    @property
    def leader(self) -> ClusterServer:
        """Of two that believe it, the one of the later term."""
        leads = [server for server in self.servers.values() if server.cluster.leads and not server.machine.dead]
        if leads:
            self._last = max(leads, key=lambda server: server.cluster.term)
        return self._last

    @property
    def machine(self) -> Machine:
        return self.leader.machine

    @property
    def rows(self) -> Dictionary:
        return self.leader.rows

    def now(self) -> float:
        leader = self.leader
        with Running(leader.loop):
            return leader.cluster.now()

    def handle(self, request: Command, sender: object, answer: Answer) -> None:
        """An operator asks whichever leads."""
        if self.leader.cluster.leads:
            self.leader.handle(request, sender, answer)

    def crash(self) -> None:
        """The one that leads loses its power."""
        self._crashed.append(self.leader)
        self._crashed[-1].crash()

    def restart(self) -> None:
        """The one that was away for the longest comes back."""
        self._crashed.pop(0).restart()


class ClusterWorld(ServerWorld):
    """Three lock servers and three nodes of etcd."""

    manager_class = ClusterServer
    url = "holdfast://" + ",".join(SERVERS)

    def build(self, disk: Disk | None, manager_class: type[Any]) -> None:
        for name in (*NODES, *SERVERS):
            self.machines[name] = Machine(self.world, name, self.rates.get(name, 1.0))
        self.etcd = SimulatedEtcd(self.network, self.machines)
        queued: dict[str, float] = {}
        self.servers: dict[str, ClusterServer] = {
            name: manager_class(self.network, self.machines[name], self.etcd, queued, self._teller(name))
            for name in SERVERS
        }
        self.server = self.servers[SERVERS[0]]
        self.manager = self.managers = Managers(self.servers, queued)

    def _teller(self, name: str) -> Tell:
        return lambda event, text: self.chronicle.tell(name, event, text)

    def server_at(self, address: Address) -> LockServer:
        return self.servers[address.host]

    def close(self) -> None:
        """End the world. What failed inside a server is nobody's fault but ours."""
        self.world.end()
        for server in self.servers.values():
            server.loop.end()
        for server in self.servers.values():
            if server.failures:
                raise server.failures[0]
