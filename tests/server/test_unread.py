"""What all clients together have not taken is bounded as it is made, and whoever takes nothing slows nobody down."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator

import pytest

from holdfast.engines.resp.wire import pack
from holdfast.server.batches import MUCH
from holdfast.server.burdens import heaviest_first
from holdfast.server.held_back import HeldBack
from holdfast.server.limits import Limits
from holdfast.server.users import User
from holdfast.verify.servers.process import wait_until
from tests.core.test_ends import lines_run
from tests.server.inside import Client, GatedStore, Inside, Line
from tests.server.test_hostile import resident
from tests.servers.lock_server import WITHIN, LockServer

ADA, BOB = (User(name, password="x", holds=("",), reads=("",)) for name in ("ada", "bob"))
VALUE = 300_000
GET = pack(("HF.CELLGET", "big"))


class Unread(Line):
    """A client that reads nothing."""

    def __init__(self, size: int = 0) -> None:
        super().__init__()
        self.size = size

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.size += len(data)

    def get_write_buffer_size(self) -> int:
        return self.size


def hoarder(inside: Inside, user: User, size: int = 0) -> Client:
    """A client that reads nothing, of some user."""
    client = Client(inside, user)
    client.line = Unread(size)
    client.connection._transport = client.line
    return client


@pytest.fixture
async def store() -> GatedStore:
    return GatedStore()


@pytest.fixture
async def inside(store: GatedStore) -> AsyncIterator[Inside]:
    inside = Inside(store, Limits(total_output=4_000_000))
    writer = Client(inside)
    writer.send("HF.CELLSET", "big", "x" * VALUE)
    await inside.turn()
    store.let()
    await inside.settle()
    yield inside
    inside.close()


async def test_the_worst_of_the_worst_user_goes_first(inside: Inside) -> None:
    ada, bob = [hoarder(inside, ADA, 1_500_000) for _ in range(2)], hoarder(inside, BOB, 2_000_000)

    inside.service.unread.look()

    # Bob's is the largest of all, but Ada's together are more.
    assert not bob.line.closed
    assert sorted(one.line.closed for one in ada) == [False, True]


async def test_it_is_noticed_as_soon_as_it_is_let_out(inside: Inside) -> None:
    hoarders = [hoarder(inside, ADA) for _ in range(16)]
    for one in hoarders:
        one.connection.data_received(GET)
    await inside.settle()

    left = [one for one in hoarders if not one.line.closed]
    assert sum(one.connection.unread() for one in left) <= 4_000_000 * 9 / 8
    assert len(left) >= 12


async def test_what_waits_for_a_commit_is_bounded_whoever_asked_for_it(inside: Inside, store: GatedStore) -> None:
    readers, writer = [Client(inside) for _ in range(20)], Client(inside)
    writer.send("HF.CELLSET", "other", "y")
    await inside.turn()
    for reader in readers:
        reader.connection.data_received(GET * 2)
        await inside.turn()
    await inside.turn(50)

    assert 0 < inside.service.batches.unsaid <= 1_000_000 + VALUE + 1_000
    # Others do not notice.
    writer.send("PING")
    await inside.turn()
    assert inside.service.batches.output[-1][:2] == (writer.connection, b"+PONG\r\n")
    store.let()
    await inside.settle()
    assert [len(reader.replies()) for reader in readers] == [2] * 20
    assert inside.service.batches.unsaid == 0


async def test_a_turn_ends_when_much_was_said_in_it(store: GatedStore) -> None:
    inside = Inside()
    writer = Client(inside)
    writer.send("HF.CELLSET", "big", "x" * VALUE)
    await inside.settle()
    readers = [Client(inside) for _ in range(50)]
    for reader in readers:
        reader.connection.data_received(GET)
    counted = inside.service.tally.commands
    while inside.service.connections and not all(reader.line.sent for reader in readers):
        before = inside.service.tally.commands
        await inside.turn(1)
        assert inside.service.tally.commands - before <= MUCH // VALUE + 1

    assert counted < inside.service.tally.commands
    inside.close()


async def test_who_waits_for_its_turn_costs_nothing_meanwhile(
    inside: Inside, store: GatedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0
    go_on = HeldBack._go_on

    def counted(self: HeldBack) -> None:
        nonlocal calls
        calls += 1
        go_on(self)

    monkeypatch.setattr(HeldBack, "_go_on", counted)
    writer = Client(inside)
    writer.send("HF.CELLSET", "other", "y")
    await inside.turn()
    readers = [Client(inside) for _ in range(500)]
    for reader in readers:
        reader.connection.data_received(GET)
    await inside.turn(200)

    # Nobody looks again and again whether it may go on.
    assert calls < 10
    store.let()
    await inside.settle()
    assert [len(reader.replies()) for reader in readers] == [1] * 500


async def test_to_find_who_has_to_go_costs_as_much_as_to_look(inside: Inside) -> None:
    everybody = [hoarder(inside, ADA if number % 2 else BOB, 1_000 + number).connection for number in range(200)]

    assert lines_run(lambda: list(heaviest_first(everybody, lambda one: one.unread()))) < 200 * 30
    assert [size for _, size in heaviest_first(everybody, lambda one: one.unread())][:3] == [1_199, 1_198, 1_197]
    inside.service.connections.difference_update(everybody)


def test_many_who_ask_for_large_values_and_read_nothing_cost_bounded_memory() -> None:
    limit = 64 << 20
    config = f"[limits]\ntotal_output = {limit}\n"
    with LockServer(config=config) as server:
        quiet = server.speak()
        quiet("HF.CELLSET", "big", "x" * (1 << 20))
        before = resident(server.pid)
        hoarders = []
        for _ in range(120):
            one = server.speak()
            # The kernel takes little for it, and the rest is the server's burden.
            one.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            one.raw(GET * 6)
            hoarders.append(one)
        worst = 0

        def is_told() -> bool:
            nonlocal worst
            assert quiet("PING") == "PONG"
            worst = max(worst, resident(server.pid) - before)
            return "does not read its replies" in server.log.read_text()

        wait_until(is_told, WITHIN, "a connection that reads nothing is closed")
        assert worst < 3 * limit
