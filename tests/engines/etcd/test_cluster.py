"""Three members: a leader that dies or stands still, and a minority that is cut off with a client in it."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import holdfast
from holdfast import HoldfastError, aio
from holdfast.core.urls import parse
from holdfast.engines.etcd.address import parse_address
from holdfast.verify.network import Network
from holdfast.verify.proxy import Proxy
from holdfast.verify.servers.etcd import EtcdCluster, EtcdServer
from tests.servers.process import wait_until

TTL = 3.0


@pytest.fixture
def cluster() -> Iterator[EtcdCluster]:
    with EtcdCluster() as cluster:
        yield cluster


class Worker(threading.Thread):
    """Takes turns with others for as long as it is let, and writes down what it held and when."""

    def __init__(self, url: str, app: str, inside: list[str], story: list[tuple[str, int]]) -> None:
        super().__init__(daemon=True)
        self.locks = holdfast.connect(url, ttl=TTL, app=app)
        self.app, self.inside, self.story = app, inside, story
        self.stopping = threading.Event()
        self.broken: list[str] = []

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                with self.locks.lock("turns", wait=30.0) as grant:
                    self._hold(grant)
            except HoldfastError:
                continue

    def _hold(self, grant: holdfast.Grant) -> None:
        self.inside.append(self.app)
        others = [app for app in self.inside if app != self.app]
        if others and grant.valid:
            self.broken.append(f"{self.app} held with {others}")
        self.story.append((self.app, grant.token))
        time.sleep(0.005)
        self.inside.remove(self.app)

    def end(self) -> None:
        self.stopping.set()
        self.join(40.0)
        self.locks.close()


@pytest.fixture
def workers(cluster: EtcdCluster) -> Iterator[list[Worker]]:
    inside: list[str] = []
    story: list[tuple[str, int]] = []
    workers = [Worker(cluster.url, f"w{number}", inside, story) for number in range(3)]
    for worker in workers:
        worker.start()
    wait_until(lambda: len(story) > 10, 30.0, "turns being taken")
    yield workers
    for worker in workers:
        worker.end()


def go_on(workers: list[Worker]) -> int:
    """Wait until each has had its turn again; how many grants there were so far."""
    story = workers[0].story
    before = len(story)
    everybody = {worker.app for worker in workers}
    wait_until(lambda: {app for app, _ in story[before:]} == everybody, 40.0, "everybody having a turn again")
    return len(story)


def nobody_held_twice(workers: list[Worker]) -> None:
    tokens = [token for _, token in workers[0].story]
    assert tokens == sorted(set(tokens))
    assert [worker.broken for worker in workers] == [[], [], []]


@pytest.mark.parametrize("how", ["kill", "pause"])
def test_turns_go_on_when_the_leader_is_gone(cluster: EtcdCluster, workers: list[Worker], how: str) -> None:
    leader = cluster.leader()
    getattr(leader, how)()
    go_on(workers)
    if how == "kill":
        leader.start()
    else:
        leader.resume()
    go_on(workers)

    nobody_held_twice(workers)


def test_a_grant_and_its_waiters_outlive_the_leader(cluster: EtcdCluster) -> None:
    with holdfast.connect(cluster.url, ttl=8.0) as locks, holdfast.connect(cluster.url, ttl=8.0) as rival:
        held = locks.lock("k").acquire()
        got: list[int] = []

        def wait(number: int) -> None:
            with rival.lock("k"):
                got.append(number)

        waiters = []
        for number in range(3):
            waiters.append(threading.Thread(target=wait, args=(number,)))
            waiters[-1].start()
            wait_until(lambda: len(locks.inspect("k").waiters) == len(waiters), 10.0, "standing in line")
        leader = cluster.leader()
        leader.kill()
        wait_until(lambda: bool(locks.inspect("k").holders), 20.0, "an answer")
        held.check()
        held.release()
        for waiter in waiters:
            waiter.join(30.0)

        assert got == [0, 1, 2]


async def test_tasks_go_on_when_the_leader_is_killed(cluster: EtcdCluster) -> None:
    async with aio.connect(cluster.url, ttl=TTL) as locks:
        tokens: list[int] = []

        async def work() -> None:
            while len(tokens) < 60:
                try:
                    async with locks.lock("k", wait=30.0) as grant:
                        tokens.append(grant.token)
                except HoldfastError:
                    continue

        workers = [asyncio.create_task(work()) for _ in range(4)]
        await asyncio.to_thread(wait_until, lambda: len(tokens) > 10, 30.0, "turns being taken")
        leader = await asyncio.to_thread(cluster.leader)
        await asyncio.to_thread(leader.kill)
        await asyncio.wait_for(asyncio.gather(*workers), 60.0)

        assert tokens == sorted(set(tokens))


class Apart:
    """A cluster on a network that can be cut, and a way to each member that can be cut too."""

    def __init__(self, network: Network, cluster: EtcdCluster, proxies: list[Proxy]) -> None:
        self.network, self.cluster, self.proxies = network, cluster, proxies

    def url(self, *numbers: int) -> str:
        """The way of a client to some of the members, or to all of them."""
        return "etcd://" + ",".join(f"127.0.0.1:{self.proxies[n].port}" for n in numbers or range(3))


@pytest.fixture
def apart() -> Iterator[Apart]:
    cluster = EtcdCluster()
    with Network(cluster.members) as network, cluster:
        proxies = [Proxy(member.host, member.port) for member in cluster.members]
        yield Apart(network, cluster, proxies)
        for proxy in proxies:
            proxy.close()


def background(work: Any) -> tuple[threading.Thread, list[Any]]:
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(work())
        except HoldfastError as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, outcome


@pytest.mark.parametrize("who", ["leader", "follower"])
def test_a_minority_grants_nothing_and_the_majority_goes_on(apart: Apart, who: str) -> None:
    """The client in the minority holds a lock, and is not alone in wanting it."""
    members: list[EtcdServer] = apart.cluster.members
    leader = members.index(apart.cluster.leader())
    alone = leader if who == "leader" else (leader + 1) % 3
    others = [number for number in range(3) if number != alone]
    with holdfast.connect(apart.url(alone), ttl=TTL, app="minority") as cut_off:
        # When the cut off member comes back with a higher term, the others have to elect once more: that is no
        # reason to lose a grant, so the ttl is long enough for an election on a machine that has other things to do.
        with holdfast.connect(apart.url(*others), ttl=20.0, app="majority") as rival:
            held = cut_off.lock("k").acquire()
            apart.network.cut_off([members[alone]])
            waiting, outcome = background(lambda: rival.lock("k").acquire(wait=40.0))
            waiting.join(45.0)
            theirs = outcome[0]
            assert not held.valid
            assert theirs.token > held.token
            with pytest.raises(HoldfastError):
                cut_off.lock("other").acquire(wait=1.0)
            with pytest.raises(HoldfastError):
                cut_off.lock("k").acquire(wait=1.0)
            rival.lock("other").acquire().release()

            apart.network.heal()
            # A member of etcd 3.5 takes seconds to find the others again: longer than a session is waited for.
            wait_until(members[alone].healthy, 40.0, "the healed one having a leader")
            late, served = background(lambda: cut_off.lock("k").acquire(wait=40.0))
            wait_until(lambda: len(rival.inspect("k").waiters) == 1, 40.0, "the healed one standing in line")
            theirs.release()
            late.join(40.0)
            assert served[0].token > theirs.token
            served[0].release()


def test_a_watch_leaves_a_member_that_is_cut_off_from_its_peers(apart: Apart, monkeypatch: pytest.MonkeyPatch) -> None:
    """The member goes on answering, but hears of nothing that happens."""
    monkeypatch.setattr("holdfast.engines.etcd.watcher.ELSEWHERE", 3600.0)
    members: list[EtcdServer] = apart.cluster.members
    alone = members.index(apart.cluster.followers()[0])
    others = [number for number in range(3) if number != alone]
    with holdfast.connect(apart.url(*others), ttl=60.0) as locks, holdfast.connect(apart.url(*others)) as rival:
        wire: Any = locks._core.engine.wire  # type: ignore[attr-defined]
        watcher: Any = locks._core.engine.watcher  # type: ignore[attr-defined]
        # The calls stay where they are; the stream begins at the member that will be cut off.
        everywhere = parse_address(parse(apart.url(*others, alone)))
        wire.address = replace(wire.address, endpoints=everywhere.endpoints)
        begin = watcher._read
        first = [lambda: begin(2)]
        watcher._read = lambda at: first.pop()() if first else begin(at)
        heard: list[str] = []

        def listen() -> None:
            heard.extend(event.name for event in itertools.islice(locks.watch("after"), 1))

        listening = threading.Thread(target=listen, daemon=True)
        listening.start()
        wait_until(lambda: watcher._stream is not None, 10.0, "the stream")
        port = watcher._stream._socket.getpeername()[1]
        assert port == apart.proxies[alone].port
        apart.network.cut_off([members[alone]])
        wait_until(
            lambda: watcher._stream is not None and watcher._stream._socket.getpeername()[1] != port,
            30.0,
            "the stream going elsewhere",
        )
        with rival.lock("after", wait=20.0):
            listening.join(20.0)

        assert heard == ["after"]


def test_a_watch_returns_to_the_member_that_answers_the_calls(
    cluster: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.engines.etcd.watcher.ELSEWHERE", 0.1)
    monkeypatch.setattr("holdfast.engines.etcd.sockets.SILENT_FOR", 0.2)
    with holdfast.connect(cluster.url, ttl=60.0) as locks:
        watcher: Any = locks._core.engine.watcher  # type: ignore[attr-defined]
        begin = watcher._read
        first = [lambda: begin(1)]
        seen: list[int] = []

        def read(at: int) -> Any:
            seen.append(at)
            return first.pop()() if first else begin(at)

        watcher._read = read
        locks.lock("k").acquire().release()
        current = cluster.members[0].port
        wait_until(
            lambda: watcher._stream is not None and watcher._stream._socket.getpeername()[1] == current,
            20.0,
            "the stream coming back",
        )
        assert len(seen) > 1
