"""Those of one client who want a place in the same line ask for it together."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast import EngineUnavailable, HoldfastError, aio
from holdfast.core import names
from holdfast.engines.postgres import fast
from holdfast.engines.postgres.commits import VerbCall
from holdfast.engines.postgres.crowd import Crowd, Seat
from holdfast.engines.postgres.schema import lock_class
from holdfast.engines.postgres.sockets import ThreadTurns
from holdfast.engines.postgres.step import Message
from holdfast.engines.postgres.table import PostgresTable
from holdfast.engines.postgres.wire import WireLost
from holdfast.errors import EngineFailure
from holdfast.locks import acquire
from holdfast.model import Claim
from holdfast.runtime import clock
from holdfast.runtime.blocking import run
from tests.servers.process import wait_until

Connect = Callable[..., holdfast.Client]
WITHIN = 30.0
CLAIM = Claim("s-1", "s", "s/1", "ns.lock", "k")


class Scene:
    """A lock that somebody else holds, a client that knows of the line before it, and a door that is shut."""

    def __init__(self, locks: holdfast.Client, rival: holdfast.Client, monkeypatch: pytest.MonkeyPatch) -> None:
        self.locks, self.rival = locks, rival
        self.held = rival.lock("k").acquire()
        self.story: list[tuple[str, int]] = []
        self.errors: list[HoldfastError] = []
        self.threads: list[threading.Thread] = []
        self.groups: list[list[Seat]] = []
        ask = PostgresTable._ask_for_places

        async def noted(table: PostgresTable, seats: list[Seat], call: VerbCall) -> None:
            self.groups.append(seats)
            await ask(table, seats, call)

        monkeypatch.setattr(PostgresTable, "_ask_for_places", noted)
        self.want("first")
        self.wait_for(1)
        wait_until(lambda: bool(self.table.crowded), WITHIN, "its own client knowing of it")
        (self.crowd,) = self.table.crowded.values()
        self.groups.clear()  # the first one asked alone
        assert run(self.crowd.door.take(clock.now() + WITHIN))
        # Shut until the test opens it, not until the call that took it has ended.
        self.crowd.door._pool.items[0].keep_for(None)  # type: ignore[attr-defined]

    @property
    def table(self) -> PostgresTable:
        io: Any = self.locks._core.verbs.io
        table: PostgresTable = io.port.table
        return table

    def want(self, who: str, wait: float = WITHIN) -> threading.Thread:
        """Somebody comes, holds the lock once, and writes down that it did."""

        def work() -> None:
            try:
                with self.locks.lock("k", wait=wait) as grant:
                    self.story.append((who, grant.token))
            except HoldfastError as error:
                self.errors.append(error)

        thread = threading.Thread(target=work, name=who)
        self.threads.append(thread)
        thread.start()
        return thread

    def want_all(self, *people: str) -> None:
        """They come one after the other, and stand before the door."""
        for number, who in enumerate(people, 1):
            self.want(who)
            wait_until(lambda: len(self.crowd.seats) == number, WITHIN, f"{who} standing before the door")  # noqa: B023

    def open(self) -> None:
        self.crowd.door.give()

    def wait_for(self, waiters: int) -> None:
        wait_until(lambda: len(self.rival.inspect("k").waiters) == waiters, WITHIN, f"{waiters} in line")

    def end(self) -> list[str]:
        """Give the lock back; who held it then, in order."""
        self.held.release()
        for thread in self.threads:
            thread.join(WITHIN)
        tokens = [token for _, token in self.story]
        assert tokens == sorted(set(tokens))
        return [who for who, _ in self.story]


@pytest.fixture
def scene(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    scene = Scene(connect(), connect(), monkeypatch)
    yield scene
    for thread in scene.threads:
        assert not thread.is_alive()


def test_all_who_want_one_get_their_places_in_one_request_and_in_the_order_they_came(scene: Scene) -> None:
    scene.want_all("a", "b", "c", "d")
    scene.open()
    scene.wait_for(5)

    assert [[seat.claim.thread for seat in group] for group in scene.groups] == [["a", "b", "c", "d"]]
    assert [fast.place(found).position for seat in scene.groups[0] for found in seat.found or ()] == [2, 3, 4, 5]
    assert [waiter.thread for waiter in scene.rival.inspect("k").waiters] == ["first", "a", "b", "c", "d"]
    assert scene.end() == ["first", "a", "b", "c", "d"]


def test_when_the_connection_of_who_asks_breaks_everybody_gets_a_place_all_the_same(
    scene: Scene, database: psycopg.Connection[Any], schema: str
) -> None:
    waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'advisory' AND query LIKE '%hf_fast_queue%'"
    scene.want_all("a", "b", "c")
    bucket = (lock_class(schema), names.bucket("k"))
    database.execute("SELECT pg_advisory_lock(%s, %s)", bucket)
    scene.open()
    wait_until(lambda: database.execute(waiting).fetchone() is not None, WITHIN, "the request reaching the server")
    (pid,) = database.execute(waiting).fetchone() or (0,)
    database.execute("SELECT pg_terminate_backend(%s)", (pid,))
    database.execute("SELECT pg_advisory_unlock(%s, %s)", bucket)
    scene.wait_for(4)

    assert len(scene.groups) > 1
    assert sorted(scene.end()) == ["a", "b", "c", "first"]
    assert scene.errors == []


def test_what_another_may_have_sent_for_it_leaves_the_outcome_open(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A place that nobody knows of would be granted in the end, to nobody."""
    ask = PostgresTable._ask_for_places

    async def ask_unheard(table: PostgresTable, seats: list[Seat], call: VerbCall) -> None:
        if len(seats) == 1:
            raise EngineFailure(table.address, "it is out of reach", "not done")
        await ask(table, seats, call)
        for seat in seats:
            seat.found = None
        raise WireLost("cut before the answer")

    monkeypatch.setattr(PostgresTable, "_ask_for_places", ask_unheard)
    scene.want_all("a", "b")
    scene.open()
    wait_until(lambda: len(scene.errors) == 1, WITHIN, "one being told")

    assert isinstance(scene.errors[0], EngineUnavailable)
    assert scene.errors[0].outcome == "unknown"
    scene.wait_for(2)
    assert scene.end() == ["first", "a"]


def test_who_gave_up_before_the_door_gets_no_place(scene: Scene) -> None:
    impatient = scene.want("impatient", wait=0.2)
    impatient.join(WITHIN)
    scene.want("patient")
    wait_until(lambda: any(not seat.over for seat in scene.crowd.seats), WITHIN, "the patient one coming")
    scene.open()
    scene.wait_for(2)

    assert len(scene.errors) == 1
    assert [seat.claim.thread for group in scene.groups for seat in group] == ["patient"]
    assert scene.end() == ["first", "patient"]


def test_who_asks_takes_along_who_wants_the_same() -> None:
    crowd = Crowd(ThreadTurns(), ThreadTurns())
    seats = [
        Seat(replace(CLAIM, id="s-1")),
        Seat(replace(CLAIM, id="s-2", owner="s/2", mode="shared")),
        Seat(replace(CLAIM, id="s-3", owner="s/3", max_hold=5.0)),
        Seat(replace(CLAIM, id="t-4", owner="t/4", session="t")),
        Seat(replace(CLAIM, id="s-5")),
        Seat(replace(CLAIM, id="s-6", owner="s/6")),
    ]
    crowd.seats += seats
    seats[5].over = True
    late = Seat(replace(CLAIM, id="s-9", owner="s/9"))

    assert crowd.take(late) == [seats[0], late]
    assert crowd.seats == []


async def test_hundreds_that_come_at_once_ask_together_and_leave_together(
    connect: Connect, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that came before their client knew that they have to queue."""
    rival = connect()
    held = rival.lock("k").acquire()
    sent = 0
    send = Message.send

    async def counted(message: Message, until: float) -> Any:
        nonlocal sent
        sent += message.wire in table.connections.open
        return await send(message, until)

    monkeypatch.setattr(Message, "send", counted)
    async with aio.connect(url) as locks:
        io: Any = locks._core.verbs.io
        table: PostgresTable = io.port
        waiters = [asyncio.create_task(locks.lock("k").acquire()) for _ in range(300)]
        # Not only in the table: a claim whose reply is still to be read leaves by itself.
        await asyncio.to_thread(wait_until, lambda: len(locks._core.waiting) == 300, WITHIN, "300 in the queue")
        assert sent < 100
        sent = 0
        for waiter in waiters[1:]:
            waiter.cancel()
        await asyncio.gather(*waiters[1:], return_exceptions=True)

        assert len((await locks.inspect("k")).waiters) == 1
        assert sent < 100
        await asyncio.to_thread(held.release)
        await (await waiters[0]).release()


FAILS_AT_FIRST = """
CREATE SEQUENCE {schema}.failures;
CREATE FUNCTION {schema}.fail_at_first() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF nextval('{schema}.failures') <= 4 THEN RAISE EXCEPTION 'not now' USING ERRCODE = '40001'; END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER fail_at_first AFTER DELETE ON {schema}.claims EXECUTE FUNCTION {schema}.fail_at_first();
"""


async def test_those_that_leave_together_leave_one_by_one_if_their_request_fails(
    connect: Connect, url: str, database: psycopg.Connection[Any], schema: str
) -> None:
    rival = connect()
    held = rival.lock("k").acquire()
    async with aio.connect(url) as locks:
        # The first acquire of a client opens its session.
        await (await locks.lock("other").acquire()).release()
        database.execute(FAILS_AT_FIRST.format(schema=schema))
        waiters = [asyncio.create_task(locks.lock("k").acquire(wait=0.5)) for _ in range(50)]
        outcomes = await asyncio.gather(*waiters, return_exceptions=True)

        assert [type(outcome) for outcome in outcomes] == 50 * [holdfast.NotAcquired]
        assert database.execute(f"SELECT last_value > 4 FROM {schema}.failures").fetchone() == (True,)
        assert not (await locks.inspect("k")).waiters
        held.release()


async def test_a_reader_behind_a_writer_that_leaves_is_granted_beside_the_reader_before_it(
    connect: Connect, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acquire, "FIRST_POLL", 10 * WITHIN)
    rival = connect()
    held = rival.rwlock("k").read().acquire()

    async def queued(waiters: int) -> None:
        await asyncio.to_thread(wait_until, lambda: len(rival.inspect("k").waiters) == waiters, WITHIN, "a queue")

    async with aio.connect(url) as locks:
        writer = asyncio.create_task(locks.rwlock("k").write().acquire())
        await queued(1)
        reader = asyncio.create_task(locks.rwlock("k").read().acquire())
        await queued(2)
        writer.cancel()
        grant = await asyncio.wait_for(reader, WITHIN)
        await asyncio.gather(writer, return_exceptions=True)

        assert (grant.valid, held.valid) == (True, True)
        await grant.release()
        await asyncio.to_thread(held.release)
