"""The lock table in PostgreSQL, shortcuts included, and on dictionaries: the same replies and notices, token for token.

PostgreSQL goes by a clock of the test: every prepared statement calls a function of the test's schema in the place of
`clock_timestamp`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings

from holdfast.core import names, urls
from holdfast.core.table import Outcome
from holdfast.core.table import commands as cmd
from holdfast.engines.engine import nobody
from holdfast.engines.postgres import crowd as postgres_crowd
from holdfast.engines.postgres import step
from holdfast.engines.postgres.address import parse_address
from holdfast.engines.postgres.commits import VerbCall
from holdfast.engines.postgres.connections import Checked, Connections
from holdfast.engines.postgres.crowd import Seat
from holdfast.engines.postgres.ledger import Ledger
from holdfast.engines.postgres.sockets import ThreadSockets
from holdfast.engines.postgres.table import PostgresTable
from holdfast.engines.postgres.wire import Wire, prepared
from holdfast.model import Mode
from holdfast.runtime import clock
from holdfast.runtime.blocking import run
from holdfast.verify.servers.postgres import PostgresServer
from tests.core.crowd import Crowd
from tests.core.walk import walk

THOROUGH = bool(os.environ.get("HOLDFAST_THOROUGH"))
SCHEMA = "agreement"

MOMENT = f"""
CREATE TABLE {SCHEMA}.moment (now float8);
INSERT INTO {SCHEMA}.moment VALUES (0);
CREATE FUNCTION {SCHEMA}.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
AS 'SELECT to_timestamp(now) FROM {SCHEMA}.moment';
"""
TABLES = ("sessions", "claims", "tombstones", "cells", "watches", "letters")
EMPTY = ";".join([*(f"DELETE FROM {SCHEMA}.{name}" for name in TABLES), f"UPDATE {SCHEMA}.counters SET last = 0"])


class ForgetfulConnections(Connections):
    """Connections that do not wait for the disk: here nobody crashes."""

    async def _prepare(self, wire: Wire, commits: str, until: float) -> None:
        await super()._prepare(wire, commits, until)
        await wire.send(["SET synchronous_commit = off"], until)


class Place:
    """A table in PostgreSQL that is used again and again, and which of its shortcuts were taken."""

    def __init__(self, server: PostgresServer) -> None:
        self.connections = ForgetfulConnections(
            parse_address(urls.parse(f"{server.url}?schema={SCHEMA}")), ThreadSockets(), 1, Checked()
        )
        self.administrator = psycopg.connect(server.url, autocommit=True)
        self.administrator.execute("SET synchronous_commit = off")
        self.administrator.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE".encode())
        self.shortcuts: Counter[str] = Counter()
        run(PostgresTable(self.connections, Ledger(), nobody).call(cmd.Sweep(), clock.now() + 60))
        self.administrator.execute(MOMENT.encode())
        self.connections.drop_idle()  # a new connection looks for the clock anew

    def fresh(self, notices: list[cmd.Notice]) -> PostgresTable:
        """An empty table."""
        self.administrator.execute(EMPTY.encode())
        return CountedTable(self.connections, Ledger(), notices.append, self.shortcuts)

    def set_clock(self, now: float) -> None:
        self.administrator.execute(f"UPDATE {SCHEMA}.moment SET now = %s".encode(), (now,))

    def close(self) -> None:
        self.connections.close()
        self.administrator.close()


class CountedTable(PostgresTable):
    """Counts what its shortcuts did."""

    def __init__(self, connections: Connections, ledger: Ledger, deliver: Any, shortcuts: Counter[str]) -> None:
        super().__init__(connections, ledger, deliver)
        self.shortcuts = shortcuts

    async def _fast(
        self, command: cmd.Enter | cmd.Release, crowded: bool, call: VerbCall, seat: Seat | None = None
    ) -> cmd.Reply | None:
        reply = await super()._fast(command, crowded, call, seat)
        if reply is not None:
            self.shortcuts[f"{type(command).__name__}{' where it is crowded' if crowded else ''}"] += 1
        return reply


class BothTables(Crowd):
    """The crowd's commands on both tables."""

    place: Place

    def __init__(self) -> None:
        super().__init__()
        self.notices: list[cmd.Notice] = []
        self.postgres = self.place.fresh(self.notices)

    def run_step(self, command: cmd.Command) -> Outcome:
        now = self.reference.now
        outcome = super().run_step(command)
        self.place.set_clock(now)
        self.notices.clear()
        # Whoever is known to stand in line, and is not the next, only looks; it would pass on what the dead have left.
        self.postgres.ledger.queued.clear()
        reply = run(self.postgres.call(command, clock.now() + 60))
        while isinstance(command, cmd.Sweep) and reply.more and not outcome.reply.more:  # type: ignore[union-attr]
            # A dead session is buried twice there, which counts as something done.
            reply = run(self.postgres.call(command, clock.now() + 60))
        assert comparable(reply) == comparable(outcome.reply), command
        assert sorted(map(repr, self.notices)) == sorted(map(repr, outcome.notices)), command
        # A grant that was passed on is told once without asking; that it may be over by then is the client's care.
        for notice in self.notices:
            self.postgres.ledger.passed_on.take(notice.subject)
        return outcome


def comparable(reply: cmd.Reply) -> Any:
    """What has to be equal: not when to clear up again, and how much of it is one step."""
    if isinstance(reply, cmd.Renewed):
        return replace(reply, next_death=None)
    if isinstance(reply, cmd.Done):
        return cmd.Done()
    return reply


@pytest.fixture(scope="module", autouse=True)
def place(server: PostgresServer) -> Iterator[Place]:
    BothTables.place = Place(server)
    clock_of_the_test = f"{SCHEMA}.clock_timestamp("
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postgres_crowd, "COURTESY", 0.0)
        # One counter for all names, as on dictionaries.
        patch.setattr(names, "bucket", lambda name: 0)
        patch.setattr(
            step, "prepared", lambda one: prepared(one).replace("pg_catalog.clock_timestamp(", clock_of_the_test)
        )
        yield BothTables.place
    BothTables.place.close()


TestBothTables = BothTables.TestCase
TestBothTables.settings = settings(
    max_examples=300 if THOROUGH else 8,
    stateful_step_count=40 if THOROUGH else 20,
    deadline=None,
    derandomize=not THOROUGH,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("seed", range(200 if THOROUGH else 4))
def test_both_tables_go_the_same_long_way(seed: int) -> None:
    walk(BothTables(), seed, steps=120 if THOROUGH else 80)


def stand_in_lines(crowd: BothTables, seed: int, steps: int) -> None:
    """Lines of plain exclusive claims, where shortcuts are taken, and now and then what bars them."""
    random = Random(seed)
    crowd.begin()
    for _ in range(steps):
        number = random.randrange(1_000)
        holders = [entry.claim for entry in crowd.reference.living() if entry.token is not None]
        match random.choices(range(6), (40, 40, 6, 3, 2, 1))[0]:
            case 0:
                plain = random.random() < 0.9
                mode: Mode = "exclusive" if plain or random.random() < 0.5 else "shared"
                rest = {} if plain else {"subtree": random.random() < 0.3, "max_hold": 2.0}
                name = random.choice(("ab", "e") if plain else ("e", "e/x"))
                crowd.ask(crowd.new_claim(number, random.choice("uvwxyz"), "lock", name, mode=mode, **rest))
            case 1 if holders:
                crowd.release(number if number < 100 else crowd.claims.index(random.choice(holders)))
            case 2 if crowd.claims:
                crowd.leave(number, random.random() < 0.3)
            case 3:
                crowd.pass_time(random.choice((0.5, 2.0)), number)
            case 4:
                crowd.sweep()
            case 5:
                crowd.break_lock(("lock", "e"), random.random() < 0.5)
        crowd.a_replay_gives_an_equal_table_in_which_nobody_waits_behind_nothing()


@pytest.mark.parametrize("seed", range(100 if THOROUGH else 12))
def test_both_tables_stand_in_the_same_lines_and_every_shortcut_is_taken(seed: int, place: Place) -> None:
    place.shortcuts.clear()

    stand_in_lines(BothTables(), seed, steps=150)

    assert set(place.shortcuts) == {"Enter", "Release", "Enter where it is crowded", "Release where it is crowded"}
