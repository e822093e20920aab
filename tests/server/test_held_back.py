"""Those who have to wait for another turn: in their order, at least one a turn, each user in turn."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise

import pytest

from holdfast.engines.resp.wire import pack
from holdfast.server.service import MOST_COST_A_TURN
from holdfast.server.users import User
from tests.server.inside import Client, Inside, opened
from tests.server.test_many import chained

ADA, BOB = (User(name, password="x", holds=("",), reads=("",), breaks=("",)) for name in ("ada", "bob"))
CHAIN, SEARCHES = 400, 30


@pytest.fixture
async def inside() -> AsyncIterator[Inside]:
    inside = Inside()
    yield inside
    inside.close()


async def test_newcomers_do_not_overtake_who_waits_for_its_turn(inside: Inside) -> None:
    first, patient = Client(inside, ADA), Client(inside, ADA)
    first.send("HF.LIST")
    patient.send("HF.LIST")
    assert len(patient.connection._backlog) == 1
    for _ in range(5):
        # As it is between two turns of the loop: what is new comes before what waits.
        inside.service._end_turn()
        newcomer = Client(inside, ADA)
        newcomer.send("HF.LIST")
        assert len(newcomer.connection._backlog) == 1
    await inside.settle()

    assert len(patient.replies()) == 1


async def test_who_waits_has_a_turn_although_others_use_up_every_one(inside: Inside) -> None:
    patient = Client(inside, ADA)
    inside.service.is_spent = True
    patient.send("HF.LIST")
    for _ in range(10):
        inside.service.is_spent = True
        await inside.turn(1)

    assert patient.line.sent


async def test_a_user_with_many_connections_has_no_more_turns_than_one_with_few(inside: Inside) -> None:
    crowd, bob = [Client(inside, ADA) for _ in range(20)], Client(inside, BOB)
    for client in (*crowd, bob):
        client.send("HF.LIST")
    turns = 0
    while not bob.line.sent:
        turns += 1
        await inside.turn(1)

    assert sum(bool(client.line.sent) for client in crowd) <= 3
    assert turns < 12
    await inside.settle()
    assert all(client.line.sent for client in crowd)


async def test_what_a_client_says_when_it_connects_waits_for_nobody(inside: Inside) -> None:
    inside.service.is_spent = True
    client = Client(inside, ADA)
    for request in (("CLIENT", "SETINFO", "LIB-NAME", "x"), ("CLIENT", "ID"), ("COMMAND", "COUNT"), ("PING",)):
        client.send(*request)

    assert not client.connection._backlog
    client.send("CLIENT", "LIST")
    assert client.connection._backlog


@pytest.mark.parametrize("how", ["one request each", "several requests each"])
async def test_searches_through_very_many_are_carried_out_a_few_in_a_turn(inside: Inside, how: str) -> None:
    await chained(inside, CHAIN)
    clients = [await opened(inside, f"session{number}") for number in range(100, 100 + SEARCHES)]
    for number, client in enumerate(clients, 100):
        client.send("HF.ACQUIRE", f"session{number}-1", f"own{number}")
    await inside.settle()
    plain = await opened(inside, "session9")
    for number, client in enumerate(clients, 100):
        # Each owner has something, so each has to be looked for along the chain.
        search = pack(("HF.ACQUIRE", f"session{number}-2", "k0"))
        more = b"".join(pack(("HF.LOOK", f"session{number}-1")) for _ in range(3))
        client.connection.data_received(search if how == "one request each" else search + more)
    cost = [inside.service.cost]
    for turn in range(10):
        plain.send("HF.ACQUIRE", f"session9-{turn}", f"free{turn}")
        await inside.turn(1)
        cost.append(inside.service.cost)

    spent = [after - before for before, after in pairwise(cost)]
    assert CHAIN < max(spent) < MOST_COST_A_TURN + 25 * CHAIN
    assert plain.line.sent.count(b"granted") > 2, "all of it was carried out first"
    await inside.settle()
    assert all(client.line.sent.count(b"queued") == 1 for client in clients)
    assert inside.service.cost - cost[0] > SEARCHES * CHAIN


async def test_a_line_that_is_emptied_at_once_is_expected_no_more(inside: Inside) -> None:
    problems: list[str] = []
    inside.loop.set_exception_handler(lambda _, context: problems.append(str(context)))
    clients = [Client(inside, ADA) for _ in range(2)]
    inside.service.is_spent = True
    for client in clients:
        client.connection.data_received(pack(("HF.INSPECT", "k")) * 2)
    await inside.settle()
    await inside.turn(5)

    assert [len(client.replies()) for client in clients] == [2, 2]
    assert problems == []


async def test_what_comes_while_one_waits_in_line_comes_after_it(inside: Inside) -> None:
    client = Client(inside, ADA)
    inside.service.is_spent = True
    client.send("HF.LIST")
    client.connection.data_received(pack(("HF.INSPECT", "k")) + pack(("PING",)))
    assert sum(map(len, inside.service.held_back._lines.values())) == 1
    await inside.settle()

    listed, inspected, pong = client.replies()
    assert (listed[0], inspected[3], pong) == (b"locks", b"k", b"PONG")
