"""One user takes a share of what the server keeps, and the others find room. What is counted is exact."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import fields
from typing import Any, cast

import pytest
from hypothesis import given

from holdfast.core.table import Dictionary
from holdfast.core.table.changes import Change
from holdfast.core.table.rebuilding import rebuilt
from holdfast.engines.resp.wire import Part, pack
from holdfast.server import codec, recovery
from holdfast.server.cluster.mirror import Mirror
from holdfast.server.codec import Batch
from holdfast.server.limits import SHARED, Limits, share_of
from holdfast.server.memory_store import MemoryStore
from holdfast.server.users import User, Users
from holdfast.server.window import Window
from tests.server.inside import SECRET, Client, Inside, opened
from tests.server.test_fuzz import packed, quick, scripts

ADA, MALLORY = (User(name, password="x", holds=("",), reads=("",), breaks=("",)) for name in ("ada", "mallory"))
USERS = Users({"ada": ADA, "mallory": MALLORY})
LIMITS = Limits(
    connections=8, sessions=6, claims=10, claim_bytes=8_000, withdrawn=4, watches=6, prefix_watches=4, cells=6,
    cell_bytes=300, cell_writes=400,
)  # fmt: skip
NOT_SHARED = {
    "claims_per_session": "of one session, whose user has a share of all claims",
    "withdrawn_per_session": "the same",
    "watches_per_session": "the same",
    "waiters_per_lock": "who may hold a name can keep the others from it by holding it; all waiters: claims",
    "letters": "the watch that is ended is one of the user with most events",
    "text": "of one text; all of them: claim_bytes",
    "value": "of one value; all of them: cell_bytes",
    "frame": "of one request; all that have not arrived: total_input",
    "frame_before_login": "the same",
    "pipeline": "of one connection",
    "output": "of one connection; all of them: total_output",
    "total_input": "the connection that is closed is one of the user who takes most",
    "total_output": "the same",
    "list": "of one answer",
    "search": "of one request",
    "min_ttl": "a time",
    "max_ttl": "a time",
    "idle": "a time",
    "login": "a time",
}
"""Limits of which no user has a share, and why."""


def test_every_limit_has_a_share_for_one_user_or_a_reason_why_not() -> None:
    of_users = {share_of(name) for name in SHARED}

    assert {field.name for field in fields(Limits)} == {*SHARED, *of_users, *NOT_SHARED}
    assert len({*SHARED, *of_users, *NOT_SHARED}) == len(SHARED) + len(of_users) + len(NOT_SHARED)


def test_a_share_is_half_of_all_by_default_and_never_nothing() -> None:
    assert [Limits().claims_per_user, Limits().sessions_per_user] == [2_500_000, 10_000]
    assert Limits.of({"claims": 3000}).claims_per_user == 1500
    assert Limits.of({"claims": 3000, "claims_per_user": 2999}).claims_per_user == 2999
    assert Limits.of({"sessions": 1}).sessions_per_user == 1


@pytest.fixture
async def inside() -> AsyncIterator[Inside]:
    inside = Inside(limits=LIMITS, users=USERS)
    yield inside
    inside.close()


ONE_MORE: dict[str, Callable[[str, int], tuple[Part, ...]]] = {
    "sessions": lambda session, number: ("HF.OPEN", f"{session}{number}", SECRET, 60_000),
    "claims": lambda session, number: ("HF.ACQUIRE", f"{session}-{number}", f"{session}.{number}"),
    "claim_bytes": lambda session, number: (
        "HF.ACQUIRE",
        f"{session}-{number}",
        f"{session}.{number}",
        "NOTE",
        "x" * 999,
    ),
    "watches": lambda session, number: ("HF.CELLWATCH", session, f"w{number}", "c"),
    "prefix_watches": lambda session, number: ("HF.WATCH", session, f"w{number}", ""),
    "cells": lambda session, number: ("HF.CELLSET", f"{session}.{number}", ""),
    "cell_bytes": lambda session, number: ("HF.CELLSET", f"{session}.{number}", "x" * 100),
    "cell_writes": lambda session, number: ("HF.CELLSET", f"{session}.c", "x" * 90),
}
"""Requests that take one more of what is limited."""


@pytest.mark.parametrize("limit", ONE_MORE)
async def test_one_user_takes_a_share_and_another_finds_room(inside: Inside, limit: str) -> None:
    mallory, ada = await opened(inside, "mallory0", MALLORY), await opened(inside, "adaadaad", ADA)
    for number in range(10):
        mallory.send(*ONE_MORE[limit]("mallory0", number))
    ada.send(*ONE_MORE[limit]("adaadaad", 1))
    await inside.settle()

    share = share_of(limit)
    refused = [str(reply) for reply in mallory.replies() if isinstance(reply, Exception)]
    assert refused
    assert {text.partition(":")[0] for text in refused} == {
        f"HFLIMIT the limit {share} = {getattr(LIMITS, share)} is reached"
    }
    assert not isinstance(ada.replies()[0], Exception)


@pytest.mark.parametrize("limit", sorted(ONE_MORE.keys() - {"sessions", "cell_writes"}))
async def test_without_users_one_client_may_have_all(limit: str) -> None:
    inside = Inside(limits=LIMITS)
    client = await opened(inside, "session0")
    for number in range(20):
        client.send(*ONE_MORE[limit]("session0", number))
    await inside.settle()

    refused = {str(reply).partition(":")[0] for reply in client.replies() if isinstance(reply, Exception)}
    assert refused == {f"HFLIMIT the limit {limit} = {getattr(LIMITS, limit)} is reached"}
    inside.close()


async def test_a_user_leaves_connections_for_the_others(inside: Inside) -> None:
    logins = inside.commands.logins
    clients = [Client(inside) for _ in range(5)]
    for client in clients:
        logins.checks.right.add(b"secret", MALLORY.password)
        client.send("AUTH", "mallory", "secret")
    await inside.settle()

    assert [str(client.replies()[0]).partition(":")[0] for client in clients][3:] == [
        "b'OK'", "HFLIMIT the limit connections_per_user = 4 is reached",
    ]  # fmt: skip


async def test_a_user_who_withdraws_very_much_leaves_the_others_their_connections(inside: Inside) -> None:
    async def withdraws(user: User, session: str, count: int) -> Client:
        main, side = await opened(inside, session, user), Client(inside, user)
        side.send("HF.RESUME", session, SECRET, "SIDE")
        for number in range(count):
            side.send("HF.LEAVE", f"{session}-{number}", "UNANSWERED")
        await inside.settle()
        return main

    mallory, ada = await withdraws(MALLORY, "mallory0", 9), await withdraws(ADA, "adaadaad", 2)

    assert [mallory.line.closed, ada.line.closed] == [True, False]
    usage = inside.service.table.usage
    assert [usage.of("mallory").withdrawn, usage.of("ada").withdrawn] == [2, 2]


async def test_a_watch_that_is_ended_is_of_the_user_with_most_events() -> None:
    inside = Inside(limits=Limits(letters=20), users=USERS)
    ada, mallory = await opened(inside, "adaadaad", ADA), await opened(inside, "mallory0", MALLORY)
    ada.send("HF.WATCH", "adaadaad", "w", "")
    for number in range(3):
        mallory.send("HF.WATCH", "mallory0", f"w{number}", "")
    # Each grant is in four watches, three of them Mallory's; Ada's watch of a cell is the furthest behind of all.
    ada.send("HF.CELLWATCH", "adaadaad", "c", "ada")
    for number in range(5):
        mallory.send("HF.CELLSET", "ada", number)
    for number in range(4):
        mallory.send("HF.ACQUIRE", f"mallory0-{number}", f"k{number}")
    await inside.settle()

    left = {key for key in inside.service.table.watches if key[0] == "adaadaad"}
    assert left == {("adaadaad", "w"), ("adaadaad", "c")}
    assert len(inside.service.table.watches) < 5
    inside.close()


async def test_claims_are_refused_by_the_same_limit_one_by_one_and_together(inside: Inside) -> None:
    client = await opened(inside, "mallory0", MALLORY)
    client.connection.data_received(b"".join(pack(("HF.ACQUIRE", f"mallory0-{n}", f"k{n}")) for n in range(8)))
    await inside.settle()
    together = client.replies()
    client.send("HF.CLOSE", "mallory0")
    client.send("HF.OPEN", "mallory1", SECRET, 60_000)
    steps = "\n".join(f"+{n}\tk{n}\tme\tt" for n in range(8))
    client.send("HF.MANY", "mallory1", "holdfast.lock", steps)
    await inside.settle()

    many = client.replies()[-1]
    for replies in (together, many):
        assert [isinstance(reply, Exception) for reply in replies] == [False] * 5 + [True] * 3
        assert "claims_per_user = 5" in str(replies[5])


async def test_the_texts_of_claims_are_bounded_and_not_only_their_number() -> None:
    inside = Inside(limits=Limits(claim_bytes=40_000), users=USERS)
    client = await opened(inside, "mallory0", MALLORY)
    texts = ("NOTE", "z" * 1000, "OWNER", "y" * 990, "THREAD", "t" * 1000)
    for number in range(10):
        client.send("HF.ACQUIRE", f"mallory0-{number}", "n" * 480 + str(number), *texts)
    await inside.settle()

    granted = [reply for reply in client.replies() if not isinstance(reply, Exception)]
    assert len(granted) == 5
    assert inside.service.table.usage.of("mallory").claim_bytes <= 20_000
    inside.close()


async def test_paths_above_a_name_count_for_what_their_index_takes(inside: Inside) -> None:
    client = await opened(inside, "mallory0", MALLORY)
    before = inside.service.table.usage.total.claim_bytes
    client.send("HF.ACQUIRE", "mallory0-1", "/".join("abcdefgh"))
    await inside.settle()

    assert inside.service.table.usage.total.claim_bytes - before > 7 * 256


async def test_a_claim_that_changes_hands_counts_for_the_new_user(inside: Inside) -> None:
    ada, mallory = await opened(inside, "adaadaad", ADA), await opened(inside, "mallory0", MALLORY)
    ada.send("HF.ACQUIRE", "adaadaad-1", "k")
    ada.send("HF.HANDOVER", "adaadaad-1", "ticket")
    for number in range(5):
        mallory.send("HF.ACQUIRE", f"mallory0-{number}", f"m{number}")
    mallory.send("HF.ADOPT", "mallory0-9", "adaadaad-1", "ticket", "k")
    mallory.send("HF.RELEASE", "mallory0-0")
    mallory.send("HF.ADOPT", "mallory0-9", "adaadaad-1", "ticket", "k")
    await inside.settle()

    refused, _, adopted = mallory.replies()[-3:]
    assert "claims_per_user = 5" in str(refused)
    assert adopted[0] == b"granted"
    usage = inside.service.table.usage
    # What Ada had is remembered until her session has let it go.
    assert [usage.of("ada").claims, usage.of("ada").withdrawn, usage.of("mallory").claims] == [1, 1, 5]
    ada.send("HF.RELEASE", "adaadaad-1")
    await inside.settle()
    assert usage.of("ada").claims == 0


async def test_a_cell_counts_for_the_user_who_wrote_it_last(inside: Inside) -> None:
    ada, mallory = Client(inside, ADA), Client(inside, MALLORY)
    for number in range(3):
        mallory.send("HF.CELLSET", f"c{number}", "x")
    ada.send("HF.CELLSET", "c0", "y")
    mallory.send("HF.CELLSET", "c3", "x")
    mallory.send("HF.CELLSET", "c0", "x")
    mallory.send("HF.CELLDEL", "c1")
    mallory.send("HF.CELLSET", "c0", "x")
    await inside.settle()

    assert ["cells_per_user = 3" in str(reply) for reply in mallory.replies()] == [False] * 4 + [True, False, False]
    assert ada.replies()[0][0] == b"cell"
    usage = inside.service.table.usage
    assert [usage.of("ada").cells, usage.of("mallory").cells] == [0, 3]


async def test_sessions_of_before_there_were_users_have_a_share_together() -> None:
    inside = Inside(limits=LIMITS)
    client = await opened(inside, "session0")
    inside.service.set_rules(LIMITS, USERS)
    for number in range(6):
        client.send("HF.ACQUIRE", f"session0-{number}", f"k{number}")
    await inside.settle()

    assert ["claims_per_user" in str(reply) for reply in client.replies()] == [False] * 5 + [True]
    inside.close()


async def test_other_limits_count_from_a_reload_on(inside: Inside) -> None:
    client = await opened(inside, "mallory0", MALLORY)
    client.send("HF.ACQUIRE", "mallory0-1", "a")
    client.send("HF.ACQUIRE", "mallory0-2", "b")
    inside.service.set_rules(Limits(claims=10, claims_per_user=2), USERS)
    client.send("HF.ACQUIRE", "mallory0-3", "c")
    inside.service.set_rules(Limits(claims=10, claims_per_user=3), USERS)
    client.send("HF.ACQUIRE", "mallory0-3", "c")
    await inside.settle()

    assert ["claims_per_user = 2" in str(reply) for reply in client.replies()] == [False, False, True, False]


class RecordingStore(MemoryStore):
    """Remembers what it is given, and its clock goes when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.at = 1.0
        self.window = Window()
        self.follower = Mirror(Dictionary(), cast(Any, None), 0, cast(Any, None), 0.0)

    def load(self) -> Dictionary:
        return recovery.rebuild(0, [], self.window)

    def now(self) -> float:
        return self.at

    async def keep(self, changes: Sequence[Change], may_block: bool = False) -> None:
        records = codec.records(changes)
        self.window.absorb(records)
        self.follower._apply([Batch(1, self.at, codec.parse(codec.dump(records)), 0)])


def counted_anew(table: Dictionary) -> Dictionary:
    copy = Dictionary()
    for change in codec.whole(table):
        copy.put(change)
    return copy


async def count(script: list[tuple[Any, ...]]) -> None:
    """Run requests of two users in turn; now and then time passes and something ends."""
    store = RecordingStore()
    inside = Inside(store, limits=Limits(claims_per_session=5, withdrawn_per_session=3), users=USERS)
    clients = [await opened(inside, "attack01", ADA), await opened(inside, "victim01", MALLORY)]
    for number, request in enumerate(script):
        store.at += 0.06 if number % 7 == 6 else 30.0 if number % 19 == 18 else 0.0
        inside.service.begin_turn()
        # Mostly by the connection that speaks for the session: others may do little with it.
        data = packed(request)
        mine = clients[b"victim01" in data] if number % 5 else clients[number % 2]
        mine.connection.data_received(data)
        await inside.settle()
        assert inside.service.table.usage == counted_anew(inside.service.table).usage
    await inside.service.batches.finish()

    usage = inside.service.table.usage
    assert usage == store.load().usage, "after a restart"
    assert usage == store.follower.table.usage, "on a server that takes over"
    assert usage == rebuilt(inside.service.table).usage
    inside.close()


@quick
@given(scripts)
def test_what_is_counted_is_what_is_there(script: list[tuple[Any, ...]]) -> None:
    with asyncio.Runner() as runner:
        runner.run(count(script))


async def test_what_is_given_back_is_counted_no_more(inside: Inside) -> None:
    client = await opened(inside, "mallory0", MALLORY)
    before = inside.service.table.usage.of("mallory").claim_bytes
    for name in ("k", "a/b"):
        client.send("HF.ACQUIRE", "mallory0-1", name)
        client.send("HF.RELEASE", "mallory0-1")
        client.send("HF.ACQUIRE", "mallory0-2", name)
        client.send("HF.BREAK", name, "FORCE")
        client.send("HF.RELEASE", "mallory0-2")
    await inside.settle()

    account = inside.service.table.usage.of("mallory")
    assert [account.claims, account.withdrawn, account.claim_bytes] == [0, 0, before]
    assert account == inside.service.table.usage.total


async def test_all_that_has_ended_is_counted_no_more() -> None:
    store = RecordingStore()
    inside = Inside(store, limits=LIMITS, users=USERS)
    client = await opened(inside, "mallory0", MALLORY)
    for number, limit in enumerate(("claims", "watches", "prefix_watches")):
        client.send(*ONE_MORE[limit]("mallory0", number))
    client.send("HF.CELLSET", "c", "x", "KEEP", 1000)
    client.send("HF.ACQUIRE", "mallory0-9", "broken")
    client.send("HF.BREAK", "broken", "FORCE")
    await inside.settle()
    store.at += 100.0
    inside.service.begin_turn()
    await inside.settle()

    assert inside.service.table.usage == Dictionary().usage
    inside.close()
