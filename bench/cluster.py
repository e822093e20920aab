"""The replicated lock server against etcd's own lock service on the same etcd cluster, and how long a failure lasts.

    python -m bench.cluster [--json] [--rounds N] [--seconds S] [--locks N] [--only TEXT]

Three etcd nodes and three lock servers on this machine, clients in a process of their own (bench/server_load.py).
Rounds are interleaved, and what counts is the median ratio: what else the machine does hits all of them.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterator
from dataclasses import asdict

from bench.cluster_gap import Gap
from bench.server import Result, load
from bench.server_size import fill
from holdfast.verify.servers.etcd import EtcdCluster
from holdfast.verify.servers.lock_cluster import LockCluster
from holdfast.verify.servers.process import wait_until
from tests.servers.lock_server import Wire

AS_IT_COMES = ("--heartbeat-interval", "100", "--election-timeout", "1000")
"""etcd's own defaults: tests have it elect sooner."""
WHOLE_WITHIN = 60.0
SESSIONS = 100


def against(cluster: LockCluster, connections: int, limit: float, rounds: int, seconds: float) -> Result:
    """Pairs a second as a multiple of v3lock's, asked where it is fastest: at the member that leads."""
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(load("holdfast", cluster.leader().port, connections, seconds)["pairs_per_s"])
        theirs.append(load("v3lock", cluster.etcd.leader().port, connections, seconds)["pairs_per_s"])
    ratio = statistics.median(one / other for one, other in zip(ours, theirs, strict=True))
    figures = {"ours/s": statistics.median(ours), "v3lock/s": statistics.median(theirs)}
    return Result(f"{connections} connections, pairs/s as a multiple of v3lock's", ratio, limit, True, figures)


def made_whole(cluster: LockCluster) -> None:
    """Start again what has ended, and wait until everything is there."""
    for node in cluster.etcd.members:
        node.relaunch()
    for server in cluster.members:
        server.relaunch()
    wait_until(lambda: all(node.healthy() for node in cluster.etcd.members), WHOLE_WITHIN, "etcd being whole")
    wait_until(lambda: all(server.is_ready() for server in cluster.members), WHOLE_WITHIN, "all servers answering")
    cluster.leader()


def gap(cluster: LockCluster, aim: Callable[[], Callable[[], None]], rounds: int) -> list[float]:
    """How long nothing was granted, each time that something was done to the cluster.

    Whom it is done to is found before the time runs: on a busy machine the look takes so long that what is granted
    meanwhile would pass for grants after it.
    """
    found = []
    for _ in range(rounds):
        strike = aim()
        with Gap(cluster.url) as client:
            found.append(client.after(strike))
        made_whole(cluster)
    return found


def filled(cluster: LockCluster, locks: int) -> int:
    """Let locks be held; how many. Once etcd's leader is gone, the lead may go on to another server a little later."""
    tries = 5
    while True:
        try:
            with Wire(cluster.leader().port) as wire:
                return fill(wire, SESSIONS, max(1, locks // SESSIONS))
        except (EOFError, OSError):
            tries -= 1
            if not tries:
                raise


def failures(cluster: LockCluster, locks: int, rounds: int) -> Iterator[Result]:
    """A leader that is killed, etcd's leader that is killed, and a leader that is told to end."""
    for what, aim, limit in (
        ("kill -9 of the server that leads", lambda: cluster.leader().kill, 1.5 * cluster.lease),
        ("kill -9 of etcd's leader", lambda: cluster.etcd.leader().kill, 3.0),
    ):
        found = gap(cluster, aim, rounds)
        yield Result(f"{what}: seconds without a grant", statistics.median(found), limit, False, {"worst": max(found)})
    held = filled(cluster, locks)
    found = gap(cluster, lambda: cluster.leader().stop, rounds)
    figures = {"worst": max(found), "locks held": float(held)}
    yield Result("SIGTERM of the leader: seconds without a grant", statistics.median(found), 0.1, False, figures)


def results(options: argparse.Namespace) -> Iterator[Result]:
    """Every promise in turn, or those asked for."""
    wanted = options.only.split(",")
    with EtcdCluster(*AS_IT_COMES) as etcd, LockCluster(etcd=etcd) as cluster:
        for connections, limit in ((64, 4.0), (256, 6.0)):
            if str(connections) in wanted:
                yield against(cluster, connections, limit, options.rounds, options.seconds)
        if "failures" in wanted:
            yield from failures(cluster, options.locks, options.rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--locks", type=int, default=100_000)
    parser.add_argument("--only", default="64,256,failures", help="some of 64,256,failures")
    options = parser.parse_args()
    for result in results(options):
        print(json.dumps({**asdict(result), "kept": result.kept}) if options.json else result, flush=True)


if __name__ == "__main__":
    main()
