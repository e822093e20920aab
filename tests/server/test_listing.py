"""HF.LIST in parts, and events in parts: nothing is left out, and nobody waits for a look at everything."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.server import listing
from holdfast.server.limits import Limits
from holdfast.server.users import User
from tests.core.test_ends import lines_run
from tests.server.inside import Client, Inside


@pytest.fixture
async def inside() -> AsyncIterator[Inside]:
    inside = Inside(limits=Limits(list=10, letters=5_000, prefix_watches=3))
    yield inside
    inside.close()


async def asked(inside: Inside, client: Client, *parts: str | int) -> Any:
    client.send(*parts)
    await inside.settle()
    (reply,) = client.replies()
    return reply


async def taken(inside: Inside, *names: str) -> Client:
    client = Client(inside)
    client.send("HF.OPEN", "session1", "x" * 22, 60_000)
    for number, name in enumerate(names):
        client.send("HF.ACQUIRE", f"session1-{number}", name, "OWNER", number)
    await inside.settle()
    client.replies()
    return client


async def parts_of(inside: Inside, client: Client, *options: str | int) -> list[list[str]]:
    """The names of all parts."""
    found, cursor = [], None
    while True:
        rest = () if cursor is None else ("CURSOR", cursor)
        word, more, locks, cursor = await asked(inside, client, "HF.LIST", *options, *rest)
        assert (word, more) == (b"locks", int(cursor is not None))
        found.append([lock[3].decode() for lock in locks])
        if cursor is None:
            return found


async def test_a_long_list_comes_in_parts_without_a_gap(inside: Inside) -> None:
    names = [f"n{number:02}" for number in range(35)]
    client = await taken(inside, *names)

    parts = await parts_of(inside, client)

    assert [name for part in parts for name in part] == names
    assert list(map(len, parts)) == [10, 10, 10, 5]
    assert await parts_of(inside, client, "COUNT", 20) == parts


async def test_a_lock_is_never_cut_between_two_parts(inside: Inside) -> None:
    client = await taken(inside, "a", "b", "b", "b", "c", *["d"] * 15, "e")

    assert await parts_of(inside, client, "COUNT", 3) == [["a"], ["b"], ["c"], ["d"], ["e"]]
    info = (await asked(inside, client, "HF.LIST", "d", "COUNT", 3))[2][0]
    assert [len(info[at]) for at in (7, 9)] == [1, 2]


async def test_what_comes_and_goes_between_two_parts_leaves_the_others_in_place(inside: Inside) -> None:
    client = await taken(inside, *(f"n{number:02}" for number in range(15)))
    _, _, _, cursor = await asked(inside, client, "HF.LIST")
    client.send("HF.RELEASE", "session1-9")
    client.send("HF.RELEASE", "session1-12")
    client.send("HF.ACQUIRE", "session1-100", "n105", "OWNER", 100)
    await inside.settle()
    client.replies()

    _, more, locks, _ = await asked(inside, client, "HF.LIST", "CURSOR", cursor)

    assert (more, [lock[3] for lock in locks]) == (0, [b"n10", b"n105", b"n11", b"n13", b"n14"])


async def test_a_cursor_shows_nobody_what_one_may_not_read(inside: Inside) -> None:
    client = await taken(inside, *(f"{start}/{number}" for number in range(8) for start in "abc"))
    ada = Client(inside, User("ada", reads=("a/", "c/")))

    parts = await parts_of(inside, ada)

    assert [name for part in parts for name in part] == [f"{start}/{number}" for start in "ac" for number in range(8)]
    _, _, locks, _ = await asked(inside, ada, "HF.LIST", "CURSOR", "holdfast.lock b/0")
    assert {lock[3][:1] for lock in locks} == {b"c"}
    assert str(await asked(inside, client, "HF.LIST", "CURSOR", "nonsense")).startswith("HFINVALID")


async def test_a_list_looks_at_what_it_shows(inside: Inside) -> None:
    client = await taken(inside, *(f"n{number:04}" for number in range(3_000)))
    inside.service.table.directory.settle()
    service, user = inside.service, client.connection.user

    assert (
        lines_run(lambda: listing.locks_under(service, user, "", "holdfast.", 10, ("holdfast.lock", "n0500"))) < 2_500
    )


async def test_a_look_at_a_long_line_shows_its_first_and_looks_at_no_more(inside: Inside) -> None:
    client = await taken(inside, *["n"] * 3_000)

    info = await asked(inside, client, "HF.INSPECT", "n")

    assert [len(info[at]) for at in (7, 9)] == [1, 9]
    assert [waiter[1] for waiter in info[9]] == [b"session1-%d" % number for number in range(1, 10)]
    assert lines_run(lambda: client.send("HF.INSPECT", "n")) < 5_000
    assert lines_run(lambda: client.send("HF.LIST", "n")) < 5_000


async def test_a_list_of_claims_with_long_texts_comes_in_smaller_parts(inside: Inside) -> None:
    inside.service.set_rules(Limits(output=40_000), inside.service.users)
    client = await taken(inside)
    for number in range(40):
        client.send(
            "HF.ACQUIRE", f"session1-{number}", f"n{number % 20:02}", "NOTE", "x" * 1_000, "OWNER", f"{number:01000}"
        )
    await inside.settle()
    client.replies()

    parts = await parts_of(inside, client)

    assert [name for part in parts for name in part] == [f"n{number:02}" for number in range(20)]
    assert max(map(len, parts)) <= 4
    for number in range(40, 60):
        client.send("HF.ACQUIRE", f"session1-{number}", "n07", "NOTE", "x" * 1_000, "OWNER", f"{number:01000}")
    await inside.settle()
    client.replies()
    for request in (("HF.INSPECT", "n07"), ("HF.LIST", "n07")):
        client.send(*request)
        await inside.settle()
        assert len(client.line.sent) < 15_000
        client.replies()


async def test_events_come_in_parts_without_a_gap(inside: Inside) -> None:
    client = await taken(inside)
    client.send("HF.WATCH", "session1", "w", "")
    for number in range(1_250):
        client.send("HF.ACQUIRE", f"session1-{number}", f"n{number}")
        client.send("HF.RELEASE", f"session1-{number}")
    await inside.settle()
    client.replies()

    after, found = 0, []
    while True:
        _, after, overflowed, events = await asked(inside, client, "HF.FETCH", "session1", "w", after)
        assert not overflowed
        if not events:
            break
        assert len(events) <= 1_000
        found += [(event[1], event[5]) for event in events]

    assert found == [(word, b"n%d" % number) for number in range(1_250) for word in (b"granted", b"released")]
    assert after == 2_500


async def test_too_many_events_of_all_watches_end_the_one_that_is_furthest_behind(inside: Inside) -> None:
    client = await taken(inside)
    client.send("HF.WATCH", "session1", "idle", "")
    for number in range(1_700):
        if number == 800:
            client.send("HF.WATCH", "session1", "busy", "")
        client.send("HF.ACQUIRE", f"session1-{number}", f"n{number}")
        client.send("HF.RELEASE", f"session1-{number}")
    await inside.settle()
    client.replies()

    assert await asked(inside, client, "HF.FETCH", "session1", "idle", 0) == [b"over"]
    assert (await asked(inside, client, "HF.FETCH", "session1", "busy", 0))[0] == b"letters"
    assert inside.service.table.mail.count == 1_800


async def test_watches_of_many_names_have_a_limit_of_their_own(inside: Inside) -> None:
    client = await taken(inside)
    for number in range(3):
        assert await asked(inside, client, "HF.WATCH", "session1", f"w{number}", "") == b"OK"

    assert "prefix_watches = 3" in str(await asked(inside, client, "HF.WATCH", "session1", "w3", ""))
    assert await asked(inside, client, "HF.CELLWATCH", "session1", "w3", "cell") == b"OK"
    assert await asked(inside, client, "HF.WATCH", "session1", "w1", "") == b"OK"


async def test_no_watch_becomes_another_one(inside: Inside) -> None:
    client = await taken(inside)
    assert await asked(inside, client, "HF.CELLWATCH", "session1", "cell", "a") == b"OK"
    assert await asked(inside, client, "HF.WATCH", "session1", "wide", "a") == b"OK"

    for command, watch, name in (
        ("HF.WATCH", "cell", "a"),
        ("HF.CELLWATCH", "cell", "b"),
        ("HF.WATCH", "wide", "b"),
        ("HF.CELLWATCH", "wide", "a"),
    ):
        assert str(await asked(inside, client, command, "session1", watch, name)).startswith("HFINVALID")
    assert len(inside.service.table.mail.wide) == 1
