"""What is too much for one answer of the server comes in several, and the client puts it together."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast import HoldfastError
from tests.conformance.apis import Front
from tests.servers.lock_server import LockServer


@pytest.fixture
def server() -> Iterator[LockServer]:
    with LockServer(store="sqlite:///locks.db", config="[limits]\nlist = 10\nletters = 40\n") as server:
        yield server


async def test_a_list_that_is_longer_than_an_answer_is_complete(locks: Front) -> None:
    names = [f"n{number:02}" for number in range(35)]
    held = [await locks.lock(name).acquire() for name in names]

    assert [info.name for info in await locks.list("")] == names

    for grant in held:
        await grant.release()
    assert not await locks.list("")


async def test_a_watch_that_the_server_ended_for_falling_behind_says_so(locks: Front, rival: Front) -> None:
    async with rival.watch("") as events:
        for number in range(30):
            await (await locks.lock(f"n{number}").acquire()).release()

        with pytest.raises(HoldfastError, match="events of the watch were missed"):
            await events.next()
