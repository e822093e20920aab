"""Plain claims and releases of concurrent tasks are sent as one HF.MANY."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
from hiredis import ProtocolError

from holdfast import NotAcquired, aio
from holdfast.engines.holdfast.tasks import StepsJoint
from holdfast.engines.resp.wire import Lost
from tests.conformance.stage import PATIENCE, eventually
from tests.engines.wire.together import give, names, take
from tests.servers.lock_server import LockServer


@pytest.fixture
async def client(server: LockServer) -> AsyncIterator[aio.Client]:
    async with aio.connect(server.url, ttl=60.0) as client:
        await (await client.lock("first").acquire()).release()
        yield client


class Written:
    """What a client writes to the server, beside the keeper."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.requests: list[bytes] = []
        real = socket.socket.send
        written = self.requests

        def send(wire: socket.socket, data: bytes) -> int:
            written.append(bytes(data))
            return real(wire, data)

        monkeypatch.setattr(socket.socket, "send", send)

    def count(self, word: bytes) -> int:
        return sum(request.count(word) for request in self.requests)


@pytest.fixture
def written(client: aio.Client, monkeypatch: pytest.MonkeyPatch) -> Written:
    return Written(monkeypatch)


async def test_pairs_of_many_tasks_are_two_requests(client: aio.Client, written: Written) -> None:
    for _ in range(5):
        await give(await take(client, names()))

    assert written.count(b"HF.MANY") == 10
    assert written.count(b"HF.ACQUIRE") == written.count(b"HF.RELEASE") == 0


async def test_one_by_itself_is_sent_as_such(client: aio.Client, written: Written) -> None:
    """So that the server can carry it out together with those of other clients."""
    await (await client.lock("k").acquire()).release()

    assert (written.count(b"HF.ACQUIRE"), written.count(b"HF.RELEASE"), written.count(b"HF.MANY")) == (1, 1, 0)


async def test_what_is_not_plain_goes_by_itself_and_in_its_order(client: aio.Client, written: Written) -> None:
    reader = client.rwlock("r").read()
    permit = client.semaphore("s", limit=2)
    taking = [
        *(client.lock(name).acquire() for name in names()), reader.acquire(), permit.acquire(),
        client.lock("n", note="why").acquire(), client.lock("t", subtree=True).acquire(),
        client.lock("h", max_hold=60.0).acquire(), *(client.lock(f"also{name}").acquire() for name in names()),
    ]  # fmt: skip
    grants = await asyncio.gather(*taking)

    assert written.count(b"HF.MANY") == 2
    assert written.count(b"HF.ACQUIRE") == 5
    tokens = [grant.token for grant in grants]
    assert tokens == sorted(set(tokens))
    await give(grants)


async def test_those_of_several_namespaces_and_sessions_are_kept_apart(server: LockServer, client: aio.Client) -> None:
    async with aio.connect(server.url, namespace="other", ttl=60.0) as other:
        await (await other.lock("first").acquire()).release()
        mine, others = await asyncio.gather(take(client, names()), take(other, names()))

        assert len({grant.token for grant in (*mine, *others)}) == 2 * len(names())
        await give([*mine, *others])


async def test_one_that_does_not_wait_is_told_so_among_others(client: aio.Client) -> None:
    held = await client.lock("k").acquire()

    async def try_it() -> aio.Grant | None:
        return await client.lock("k").try_acquire()

    async def wait_a_little() -> None:
        await client.lock("k").acquire(wait=0.05)

    tried, waited, *grants = await asyncio.wait_for(
        asyncio.gather(
            asyncio.create_task(try_it()),
            asyncio.create_task(wait_a_little()),
            *(client.lock(name).acquire() for name in names()),
            return_exceptions=True,
        ),
        PATIENCE,
    )

    assert tried is None
    assert isinstance(waited, NotAcquired)
    await give([grant for grant in grants if isinstance(grant, aio.Grant)])
    await held.release()


def is_longer(found: list[int], count: int) -> bool:
    return len(found) > count


async def test_a_server_that_goes_in_the_middle_costs_none_of_them(server: LockServer, client: aio.Client) -> None:
    """Nobody knows which of the steps were carried out: each finds out by its claim id."""
    tokens: list[int] = []
    over = False

    async def work(name: str) -> None:
        while not over:
            grant = await client.lock(name).acquire(wait=PATIENCE)
            tokens.append(grant.token)
            await grant.release()

    working = asyncio.gather(*(work(name) for name in names()))
    for times in range(1, 4):
        await eventually(partial(is_longer, tokens, 50 * times))
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
    over = True
    await asyncio.wait_for(working, PATIENCE)

    assert len(set(tokens)) == len(tokens)
    assert await client.list() == []


@pytest.mark.parametrize("limits", ["value = 1024\nframe = 5120", "output = 6000"])
async def test_a_server_with_narrow_limits_is_asked_for_no_more_than_it_takes(limits: str) -> None:
    with LockServer(store="sqlite:///locks.db", config=f"[limits]\n{limits}\n") as server:
        async with aio.connect(server.url, ttl=60.0) as client:
            for some in (names(), [f"{number:0190}" for number in range(40)], [f"k{number}" for number in range(80)]):
                await asyncio.wait_for(give(await take(client, some)), PATIENCE)

            async def hold(_: int) -> None:
                async with client.lock("same"):
                    await asyncio.sleep(0)

            # Who has to wait is told who holds: that makes replies long.
            await asyncio.wait_for(asyncio.gather(*map(hold, range(40))), PATIENCE)


@pytest.mark.parametrize("reply", [[b"over"], None, 17, b"OK", [1, 2, 3, 4]])
async def test_replies_that_cannot_be_told_apart_are_nobodys(reply: object) -> None:
    loop = asyncio.get_running_loop()
    joint = StepsJoint(("session1", "holdfast.lock"))
    futures = [loop.create_future() for _ in range(3)]
    request: Any = None
    joint.parts = [(request, 1e9, future) for future in futures]

    with pytest.raises(ProtocolError):
        joint.set_result(reply)

    for future in futures:
        assert isinstance(future.exception(), Lost)
