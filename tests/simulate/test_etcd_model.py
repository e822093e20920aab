"""The model of etcd answers like a real one, as far as the lock servers of a cluster ask it something."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.core import urls
from holdfast.engines.etcd import steps
from holdfast.engines.etcd.address import parse_address
from holdfast.engines.etcd.http2 import CallFailed
from holdfast.engines.etcd.keys import end_of
from holdfast.engines.etcd.messages import message
from holdfast.engines.etcd.wire import LEASE_GRANT, LEASE_REVOKE, Request, Wire
from holdfast.runtime.simulated import Machine, World
from holdfast.simulate.etcd import ELECTION, NODES, SimulatedEtcd
from holdfast.simulate.network import Network
from holdfast.verify.servers.etcd import EtcdServer

KEYS = [b"/k/%d" % number for number in range(6)]
LEASES = [11, 12]


@pytest.fixture
def real() -> Iterator[Wire]:
    with EtcdServer() as server:
        wire = Wire(parse_address(urls.parse(server.url)))
        yield wire
        wire.close()


def a_model() -> tuple[World, Network, SimulatedEtcd]:
    world = World(1, start=0.0)
    network = Network(world)
    return world, network, SimulatedEtcd(network, {name: Machine(world, name) for name in NODES})


def a_request(chance: random.Random, revision: int) -> Request:
    key, other = chance.sample(KEYS, 2)
    seen = chance.randint(0, revision)
    compare = chance.choice(
        ([], [steps.absent(key)], [steps.created_at(key, seen)], [steps.unchanged(other, seen), steps.absent(key)])
    )
    then = [
        chance.choice(
            (
                steps.put(key, b"%d" % chance.randint(0, 99), chance.choice([0, *LEASES])),
                steps.delete(key),
                steps.delete_range(min(key, other), max(key, other)),
            )
        ),
        steps.get(other),
        steps.get_all(b"/k/", chance.choice((0, 2))),
    ]
    return chance.choice(
        (
            steps.step(compare, then, [steps.get(key), steps.get(other)]),
            steps.step(compare, then, [steps.get(key), steps.get(other)]),
            steps.look(b"/k/", end_of(b"/k/"), limit=chance.choice((0, 2)), revision=seen),
            Request(LEASE_GRANT, message("LeaseGrantRequest")(ID=chance.choice(LEASES), TTL=600)),
            Request(LEASE_REVOKE, message("LeaseRevokeRequest")(ID=chance.choice(LEASES))),
        )
    )


def told(reply: Any) -> Any:
    """An answer without what differs between any two clusters, and without what the lock servers do not look at."""
    if isinstance(reply, CallFailed):
        return reply.code, reply.details
    found = type(reply)()
    found.CopyFrom(reply)
    revision = found.header.revision
    found.ClearField("header")
    for response in getattr(found, "responses", ()):
        for part in (response.response_range, response.response_put, response.response_delete_range):
            part.ClearField("header")
            for kv in getattr(part, "kvs", ()):
                kv.ClearField("version")
    for kv in getattr(found, "kvs", ()):
        kv.ClearField("version")
    return revision, str(found)


@pytest.mark.parametrize("seed", range(3))
def test_the_model_answers_like_a_real_one(seed: int, real: Wire) -> None:
    chance = random.Random(seed)
    _, _, model = a_model()
    for _ in range(400):
        request = a_request(chance, model.keys.revision)
        expected: Any
        try:
            expected = real.endpoints[0].exchange(request.method, request.message, "", 5.0)
        except CallFailed as error:
            expected = error

        assert told(model.carry_out(request)) == told(expected), request


def test_without_a_majority_nothing_is_carried_out_and_another_leader_drops_what_was_waiting() -> None:
    world, network, etcd = a_model()
    for other in NODES[1:]:
        network.cut(NODES[0], other)
    answers: list[Any] = []
    for number in range(20):
        etcd.handle(0, steps.step([], [steps.put(b"%d" % number, b"")]), answers.append)
    world.run(4 * ELECTION)
    for other in NODES[1:]:
        network.heal(NODES[0], other)
    world.run(8 * ELECTION)

    assert etcd.leader != 0
    assert etcd.term == 2
    assert answers == []
    assert etcd.keys.revision == 1


def test_a_leader_that_was_cut_off_renews_leases_for_a_while_and_says_of_which_term() -> None:
    world, network, etcd = a_model()
    etcd.carry_out(Request(LEASE_GRANT, message("LeaseGrantRequest")(ID=11, TTL=60)))
    world.run(1.0)
    for other in NODES[1:]:
        network.cut(NODES[0], other)
    while etcd.term == 1:
        world.run(world.time + 0.01)
    answers: list[Any] = []
    renewal = Request("Lease/LeaseKeepAlive", message("LeaseKeepAliveRequest")(ID=11))
    etcd.nodes[0].majority_at = world.time
    etcd.handle(0, renewal, answers.append)
    etcd.handle(etcd.leader, renewal, answers.append)
    assert [(answer.header.raft_term, answer.TTL) for answer in answers] == [(1, 60), (2, 60)]
    world.run(world.time + 3 * ELECTION)
    etcd.handle(0, renewal, answers.append)

    assert len(answers) == 2


def test_what_hangs_on_a_lease_goes_when_it_runs_out_and_whoever_watches_hears_of_it() -> None:
    world, _, etcd = a_model()
    etcd.carry_out(Request(LEASE_GRANT, message("LeaseGrantRequest")(ID=11, TTL=5)))
    etcd.carry_out(steps.step([], [steps.put(b"k", b"v", 11)]))
    heard: list[float] = []
    machine = Machine(world, "server1")
    etcd.watches["me"] = b"k", machine, lambda: heard.append(world.time)
    world.run(4.9)
    assert heard == [] or etcd.keys.at(b"k").value == b"v"
    world.run(6.0)

    assert etcd.keys.at(b"k").value is None
    assert [at for at in heard if at > 4.9]
