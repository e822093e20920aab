"""What a client is to be told is bounded while it is made, not only afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from holdfast.engines.resp.wire import pack
from holdfast.server.limits import Limits
from holdfast.server.store import StoreFull
from tests.server.inside import Client, GatedStore, Inside

OUTPUT = 400_000
VALUE = 10_000
GET = pack(("HF.CELLGET", "big"))


@pytest.fixture
async def store() -> GatedStore:
    return GatedStore()


@pytest.fixture
async def inside(store: GatedStore) -> AsyncIterator[Inside]:
    inside = Inside(store, Limits(output=OUTPUT, list=5))
    writer = Client(inside)
    writer.send("HF.CELLSET", "big", "x" * VALUE)
    await inside.turn()
    store.let()
    await inside.settle()
    yield inside
    inside.close()


def said(client: Client) -> int:
    """Bytes that wait for their batch."""
    return client.connection.unsaid


@pytest.mark.parametrize("count", [200, 1000])
async def test_no_more_is_made_than_fits_while_a_batch_is_under_way(
    inside: Inside, store: GatedStore, count: int
) -> None:
    client, writer = Client(inside), Client(inside)
    writer.send("HF.CELLSET", "other", "y")
    await inside.turn()
    client.connection.data_received(GET * count)
    await inside.turn(20)

    assert 0 < said(client) < OUTPUT
    assert not client.line.reading
    store.let()
    await inside.turn(count)
    assert len(client.replies()) == count
    assert client.line.reading


async def test_nothing_is_made_while_the_client_does_not_read(inside: Inside) -> None:
    client = Client(inside)
    client.connection.pause_writing()
    client.connection.data_received(GET * 100)
    await inside.turn(20)
    assert said(client) == 0
    assert client.line.sent == b""

    client.connection.resume_writing()
    await inside.turn(100)

    assert len(client.replies()) == 100


async def test_output_of_a_refused_batch_counts_no_more(inside: Inside, store: GatedStore) -> None:
    client, writer = Client(inside), Client(inside)
    writer.send("HF.CELLSET", "other", "y")
    await inside.turn()
    client.connection.data_received(GET * 20)
    await inside.turn()
    assert said(client) > 0

    store.let(StoreFull("test", "no room"))
    await inside.settle()

    assert said(client) == 0


@pytest.mark.parametrize("count", [3, 300])
@pytest.mark.parametrize("request_", [("HF.LIST",), ("INFO",), ("CLIENT", "LIST")])
async def test_others_have_their_turn_after_what_looks_at_much(
    inside: Inside, request_: tuple[str, ...], count: int
) -> None:
    client, other = Client(inside), Client(inside)
    client.connection.data_received(pack(request_) * count)
    asked = inside.service.tally.commands
    await inside.turn(2)
    other.send("PING")
    assert (asked, inside.service.tally.commands) == (2, 4)

    await inside.turn(4 * count)

    assert len(client.replies()) == count


async def test_a_long_line_is_shown_as_far_as_an_answer_goes(inside: Inside, store: GatedStore) -> None:
    client = Client(inside)
    client.send("HF.OPEN", "session1", "x" * 22, 60_000)
    for number in range(9):
        client.send("HF.ACQUIRE", f"session1-{number}", "k", "OWNER", f"session1/{number}")
    await inside.turn()
    store.let()
    await inside.settle()
    client.replies()
    client.send("HELLO", 3)
    client.send("HF.INSPECT", "k")
    await inside.turn()

    lock = client.replies()[1]

    assert (len(lock[b"holders"]), len(lock[b"waiters"])) == (1, 4)
