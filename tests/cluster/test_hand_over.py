"""A leader that is told to end gives the lead away, and one that is killed is missed for a while: no client fails."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

import holdfast
from holdfast.verify.servers.etcd import EtcdCluster, newer_etcd
from holdfast.verify.servers.lock_cluster import LockCluster
from holdfast.verify.servers.process import wait_until
from tests.cluster.line import Line

LEASE = 7
"""Seconds: a request that is asked when the leader is killed waits for longer than on other engines."""
TTL = 30.0
WORKERS = 4
WITHIN = 120.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[LockCluster]:
    """The lease is one that users have: a hand-over that waited for its end would be seen."""
    etcd = EtcdCluster(binary=newer_etcd())
    with etcd, LockCluster(etcd=etcd, lease=LEASE) as cluster:
        yield cluster


class Worker(threading.Thread):
    """Takes turns with the others, and writes down every token. The first error ends it."""

    def __init__(self, url: str, number: int, tokens: list[int]) -> None:
        super().__init__(daemon=True)
        self.locks = holdfast.connect(url, ttl=TTL, app=f"worker-{number}")
        self.number, self.tokens = number, tokens
        self.enough = threading.Event()
        self.turns = 0
        self.problem: holdfast.HoldfastError | None = None
        """What it met: the test judges it, in its own thread."""

    def run(self) -> None:
        try:
            while not self.enough.is_set():
                with self.locks.lock("turns", wait=WITHIN) as grant:
                    self.tokens.append(grant.token)
                with self.locks.lock(f"alone-{self.number}", wait=WITHIN):
                    self.turns += 1
        except holdfast.HoldfastError as error:
            self.problem = error


class Crew:
    """Workers that go on until they are told that it is enough."""

    def __init__(self, url: str) -> None:
        self.tokens: list[int] = []
        self.workers = [Worker(url, number, self.tokens) for number in range(WORKERS)]

    def __enter__(self) -> Crew:
        for worker in self.workers:
            worker.start()
        self.go_on()
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.enough.set()
        for worker in self.workers:
            worker.join(WITHIN)
            worker.locks.close()

    @property
    def problems(self) -> list[holdfast.HoldfastError]:
        return [worker.problem for worker in self.workers if worker.problem is not None]

    def go_on(self) -> None:
        """Wait until each has had a few more turns, or one has failed."""
        before = [worker.turns for worker in self.workers]

        def all_went_on() -> bool:
            return all(worker.turns > count + 5 for worker, count in zip(self.workers, before, strict=True))

        wait_until(lambda: bool(self.problems) or all_went_on(), WITHIN, "everybody having turns")
        assert self.problems == []


def test_a_leader_that_is_told_to_end_hands_over_without_a_failed_request(cluster: LockCluster) -> None:
    leader = cluster.leader()
    with Crew(cluster.url) as crew, ExitStack() as open_:
        clients = [open_.enter_context(holdfast.connect(cluster.url, ttl=TTL)) for _ in range(3)]
        line = Line(clients, "line", length=6)
        leader.stop()
        try:
            crew.go_on()
            assert line.problems() == []
            assert cluster.leader() is not leader
        finally:
            leader.start()
    assert crew.problems == []
    assert crew.tokens == sorted(set(crew.tokens))


def test_a_leader_that_is_killed_costs_a_pause_and_no_error(cluster: LockCluster) -> None:
    leader = cluster.leader()
    with Crew(cluster.url) as crew, ExitStack() as open_:
        clients = [open_.enter_context(holdfast.connect(cluster.url, ttl=TTL)) for _ in range(3)]
        line = Line(clients, "line", length=6)
        leader.kill()
        try:
            crew.go_on()
            assert line.problems() == []
        finally:
            leader.start()
    assert crew.problems == []
    assert crew.tokens == sorted(set(crew.tokens))


def test_a_rolling_restart_is_seen_by_nobody_and_loses_nothing(cluster: LockCluster) -> None:
    with Crew(cluster.url) as crew, ExitStack() as open_:
        clients = [open_.enter_context(holdfast.connect(cluster.url, ttl=TTL)) for _ in range(3)]
        kept = [clients[0].lock(f"kept/{number}").acquire() for number in range(20)]
        line = Line(clients, "line", length=6)
        for member in cluster.members:
            member.stop()
            crew.go_on()
            member.start()
            crew.go_on()
        assert [grant.name for grant in kept if not grant.valid] == []
        held = {info.name: info.holders[0].token for info in clients[1].list("kept/")}
        assert held == {grant.name: grant.token for grant in kept}
        assert line.problems() == []
        for grant in kept:
            grant.release()
    assert crew.problems == []
    assert crew.tokens == sorted(set(crew.tokens))
