"""What can be done to a cluster of lock servers and to etcd under it, and how it is undone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Literal

from holdfast.verify.network import Network
from holdfast.verify.servers.lock_cluster import LockCluster
from holdfast.verify.servers.process import Server, ServerFailed, wait_until

How = Literal["kill", "pause", "cut"]
WAYS: tuple[How, ...] = ("kill", "pause", "cut")
WHOLE_WITHIN = 120.0


class Deployment:
    """Three lock servers and three etcd nodes, each on a machine of its own as far as the network goes."""

    def __init__(self, cluster: LockCluster, network: Network) -> None:
        self.cluster, self.network = cluster, network

    @property
    def servers(self) -> list[Server]:
        return [*self.cluster.members, *self.cluster.etcd.members]

    def name(self, server: Server) -> str:
        """As it is called in a story: `server 1`, `etcd 3`."""
        number = self.servers.index(server)
        return f"server {number + 1}" if number < 3 else f"etcd {number - 2}"

    def serves(self, lost: list[Server]) -> bool:
        """Whether what is left has to go on: one lock server, and a majority of etcd."""
        nodes = [node for node in self.cluster.etcd.members if node not in lost]
        members = [member for member in self.cluster.members if member not in lost]
        return len(nodes) > 1 and bool(members)

    def make_whole(self) -> None:
        """Undo everything, and wait until all of it is one again."""
        self.network.heal()
        for server in self.servers:
            if server.running:
                server.resume()
            server.relaunch()
        etcd, members = self.cluster.etcd, self.cluster.members
        wait_until(lambda: all(node.healthy() for node in etcd.members), WHOLE_WITHIN, "etcd being whole")
        self.wait(lambda: all(member.is_ready() for member in members), WHOLE_WITHIN, "every server answering")
        self.cluster.leader(WHOLE_WITHIN)

    def wait(self, condition: Callable[[], bool], within: float, what: str) -> None:
        """Wait for a condition; if it does not come true, tell how each server is."""
        try:
            wait_until(condition, within, what)
        except ServerFailed as error:
            raise ServerFailed(error.name, f"{error.problem}\n{self._stories()}") from error

    def _stories(self) -> str:
        """How each lock server is, and what it said last."""
        told = ((self.name(one), one.running, one.asked().problem, one.log) for one in self.cluster.members)
        return "\n".join(
            f"{name}: running {running}, {problem or 'answers'}\n{log.read_text()[-4000:]}"
            for name, running, problem, log in told
        )


@dataclass(frozen=True)
class Fault:
    """One thing that is done to one server, or to two at once."""

    how: How
    victims: tuple[Server, ...]

    def told(self, deployment: Deployment) -> str:
        return f"{self.how} {' and '.join(deployment.name(server) for server in self.victims)}"

    def strike(self, deployment: Deployment) -> None:
        if self.how == "cut":
            deployment.network.cut_off(self.victims, from_clients=True)
            return
        for server in self.victims:
            (server.kill if self.how == "kill" else server.pause)()


def faults(deployment: Deployment, seed: int, count: int) -> Iterator[Fault]:
    """First what hurts most, each way of losing a leader, in an order of chance; then anything, to one or to two."""
    chance = Random(seed)
    cluster = deployment.cluster
    worst = [("kill", "server"), ("pause", "server"), ("cut", "server"), ("kill", "etcd"), ("kill", "both")]
    chance.shuffle(worst)
    for number in range(count):
        if number < len(worst):
            how, who = worst[number]
            leaders: dict[str, tuple[Server, ...]] = {"server": (cluster.leader(),), "etcd": (cluster.etcd.leader(),)}
            leaders["both"] = leaders["server"] + leaders["etcd"]
            yield Fault(next(way for way in WAYS if way == how), leaders[who])
        else:
            yield Fault(chance.choice(WAYS), tuple(chance.sample(deployment.servers, chance.choice((1, 1, 2)))))
