"""Faults under load, in real processes on a network that can be cut: nothing is lost, and everybody goes on."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import holdfast
from holdfast.verify.network import Network
from holdfast.verify.servers.etcd import EtcdCluster
from holdfast.verify.servers.lock_cluster import LockCluster
from holdfast.verify.servers.process import wait_until
from tests.cluster.counting import Book, Worker
from tests.cluster.disasters import Deployment, Fault, faults
from tests.cluster.line import Line
from tests.faults.children import eventually, state

FAULTS = int(os.environ.get("HOLDFAST_CLUSTER_FAULTS", "5"))
SEED = int(os.environ.get("HOLDFAST_CLUSTER_SEED", secrets.randbelow(1_000_000)))
WORKERS = 8
LEASE = 2
TTL = 30.0
"""Of clients: longer than any fault, so that a place in line or a grant that is gone was lost by the servers."""
SHORTEST_TTL = 3.0 * LEASE
GO_ON_WITHIN = 120.0


@pytest.fixture(scope="module")
def deployment() -> Iterator[Deployment]:
    # Not the newer one: a member of etcd 3.5.1 that is killed may forget what it had committed (etcd's issue 13766).
    etcd = EtcdCluster()
    cluster = LockCluster(etcd=etcd, lease=LEASE)
    with ExitStack() as open_:
        open_.callback(etcd.close)
        open_.callback(cluster.close)
        network = open_.enter_context(Network([*cluster.members, *etcd.members]))
        etcd.start()
        cluster.start()
        yield Deployment(cluster, network)


@pytest.fixture
def book(tmp_path: Path) -> Book:
    made = Book(tmp_path / "counter.db")
    made.create()
    return made


def endure(fault: Fault, deployment: Deployment, book: Book) -> None:
    """Strike; wait until what is left goes on, or until nobody dares to lead; make whole; wait for everybody."""
    fault.strike(deployment)
    if deployment.serves(list(fault.victims)):
        since = len(book.writes())
        deployment.wait(lambda: len(book.writes()) > since + 5, GO_ON_WITHIN, "somebody going on while it lasts")
    else:
        left = [member for member in deployment.cluster.members if member not in fault.victims]
        deployment.wait(lambda: not any(member.leads for member in left), GO_ON_WITHIN, "nobody leading without etcd")
    deployment.make_whole()
    since = len(book.writes())
    everybody = set(range(WORKERS))
    deployment.wait(lambda: book.writers(since) == everybody, GO_ON_WITHIN, "everybody going on after it")


@pytest.mark.timeout(300 + 120 * FAULTS)
def test_faults_of_servers_and_etcd_lose_neither_increments_nor_places(deployment: Deployment, book: Book) -> None:
    print(f"HOLDFAST_CLUSTER_SEED={SEED}")
    url = deployment.cluster.url
    with ExitStack() as open_:
        workers = [open_.enter_context(Worker(url, book, number, ttl=TTL)) for number in range(WORKERS)]
        clients = [open_.enter_context(holdfast.connect(url, ttl=TTL, app=f"line-{n}")) for n in range(3)]
        wait_until(lambda: book.writers(0) == set(range(WORKERS)), GO_ON_WITHIN, "everybody counting")
        for number, fault in enumerate(faults(deployment, SEED, FAULTS)):
            line = Line(clients, f"line-{number}")
            print(f"fault {number + 1}: {fault.told(deployment)}")
            endure(fault, deployment, book)
            assert line.problems() == [], f"seed {SEED}, fault {number + 1}: {fault.told(deployment)}"
        print([worker.finish() for worker in workers])

    writes = book.writes()
    tokens = [token for _, token in writes]
    assert book.value == len(writes) == sum(worker.done for worker in workers)
    assert tokens == sorted(set(tokens))


def pause_a_writer(cluster: LockCluster, book: Book, *, fenced: bool) -> dict[str, int]:
    """Stop one between its read and its write until others have written; which errors it met."""
    with ExitStack() as open_:
        paused = open_.enter_context(Worker(cluster.url, book, 0, ttl=SHORTEST_TTL, fenced=fenced, stop_at=3))
        other = open_.enter_context(Worker(cluster.url, book, 1, ttl=SHORTEST_TTL, fenced=fenced))
        eventually(lambda: state(paused.pid) == "T", "it did not stop before its write", GO_ON_WITHIN)
        since = len(book.writes())
        wait_until(lambda: len(book.writes()) > since + 10, GO_ON_WITHIN, "the other one going on")
        paused.go_on()
        since = len(book.writes())
        wait_until(lambda: book.writers(since) == {0, 1}, GO_ON_WITHIN, "the one that was paused going on")
        other.finish()
        return paused.finish()


def test_the_write_of_a_client_that_was_paused_is_refused(deployment: Deployment, book: Book) -> None:
    errors = pause_a_writer(deployment.cluster, book, fenced=True)

    assert errors["StaleToken"] == 1
    assert book.value == len(book.writes())


def test_without_the_fence_increments_are_lost(deployment: Deployment, book: Book) -> None:
    """The control: if nothing were lost here, the tests above would prove nothing."""
    pause_a_writer(deployment.cluster, book, fenced=False)

    assert book.value < len(book.writes())
