"""The table on dictionaries and on SQLite's rows: the same replies, changes and notices, token for token."""

from __future__ import annotations

import os
import sqlite3
from dataclasses import replace
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from holdfast.core.table import Outcome, apply, cells
from holdfast.core.table import commands as cmd
from holdfast.core.table.changes import DropRow, PutLetter, PutRow
from holdfast.engines.sqlite.rows import SqliteRows
from holdfast.model import MAX_TOKEN, Claim, LockEvent
from tests.core.crowd import NAMES, Crowd, numbers
from tests.core.walk import walk

THOROUGH = bool(os.environ.get("HOLDFAST_THOROUGH"))
prefixes = st.sampled_from(("", "a", "a/", "a/b", "ab", "e/"))
cell_names = st.sampled_from(("c", "c/d"))


def in_memory() -> sqlite3.Connection:
    """An empty table in SQLite whose counter never meets its bound."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(files("holdfast.engines.sqlite").joinpath("schema.sql").read_text())
    connection.execute("INSERT INTO counter VALUES (0, 0, ?)", (MAX_TOKEN,))
    return connection


def comparable(outcome: Outcome) -> tuple[Any, ...]:
    """What has to be equal. `waits` is not kept in the table: it matters to a newcomer only."""
    changes = [
        type(change)(change.row._replace(claim=replace(change.row.claim, waits=True)))
        if isinstance(change, PutRow | DropRow)
        else change
        for change in outcome.changes
    ]
    return without_cycles(outcome.reply), list(map(without_cycles, changes)), outcome.notices


def without_cycles(found: Any) -> Any:
    """The same with the length of a cycle in place of its members: each store may find another one of this length."""
    match found:
        case cmd.Deadlocked(cycle):
            return "Deadlocked", len(cycle)
        case PutLetter(letter):
            return letter._replace(event=without_cycles(letter.event))
        case LockEvent():
            return replace(found, detail="")
        case cmd.Letters(events):
            return replace(found, events=tuple(map(without_cycles, events)))
        case cmd.OwnClaimsPage(claims):
            return replace(found, claims=tuple((replace(claim, waits=True), token) for claim, token in claims))
    return found


class Stores(Crowd):
    """The crowd's commands, and those that only read or write cells and watches, on both stores."""

    def __init__(self) -> None:
        super().__init__()
        self.connection = in_memory()
        self.rows = SqliteRows(self.connection)
        self.fetched: dict[tuple[str, str], int] = {}

    def run_step(self, command: cmd.Command) -> Outcome:
        outcome = super().run_step(command)
        now = self.reference.now
        other = apply(command, now, self.rows.answer, self.rows.put, wall=now)
        assert comparable(other) == comparable(outcome), command
        return outcome

    def teardown(self) -> None:
        self.connection.close()

    def begin_watching(self) -> None:
        """Two sessions hear of everything: they keep on as long as nobody closes them."""
        self.open(8.0)
        self.open(8.0)
        self.watch(1, "w", "")
        self.watch(2, "v", "a")

    @rule(name=st.sampled_from(NAMES))
    def inspect(self, name: str) -> None:
        self.send(cmd.Inspect("lock", name))

    @rule(prefix=prefixes, kind=st.sampled_from(("lock", "permit")), limit=st.sampled_from((2, 100)))
    def list_locks(self, prefix: str, kind: str, limit: int) -> None:
        self.send(cmd.List(prefix, kind, limit))

    @rule(name=cell_names, value=st.sampled_from((b"1", b"2", None)), expected=st.sampled_from((None, 0)),
          keep=st.sampled_from((None, 2.0)))  # fmt: skip
    def set_cell(self, name: str, value: bytes | None, expected: int | None, keep: float | None) -> None:
        self.send(cmd.CellSet("cell", name, value, expected, keep))

    @rule(name=cell_names)
    def swap_cell(self, name: str) -> None:
        version = self.send(cmd.CellGet("cell", name)).version
        assert isinstance(self.send(cmd.CellSet("cell", name, b"3", version)), cmd.CellValue)

    @rule(number=numbers, id_=st.sampled_from("vw"), prefix=prefixes)
    def watch(self, number: int, id_: str, prefix: str) -> None:
        self.send(cmd.Subscribe(self.session(number), id_, "lock", prefix))

    @rule(number=numbers, name=cell_names)
    def watch_cell(self, number: int, name: str) -> None:
        self.send(cmd.Subscribe(self.session(number), "u", cells.watch_kind("cell"), name))

    @rule(number=numbers, id_=st.sampled_from("uvw"))
    def unwatch(self, number: int, id_: str) -> None:
        self.fetched.pop((self.session(number), id_), None)
        self.send(cmd.Unsubscribe(self.session(number), id_))

    @precondition(lambda self: self.table.watches)
    @rule(number=numbers)
    def fetch(self, number: int) -> None:
        key = sorted(self.table.watches)[number % len(self.table.watches)]
        reply = self.send(cmd.Fetch(*key, self.fetched.get(key, 0)))
        assert reply.last >= self.fetched.get(key, 0)
        self.fetched[key] = reply.last

    @rule(number=numbers, most=st.sampled_from((1, 2, 100)))
    def own_claims(self, number: int, most: int) -> None:
        session = self.session(number)
        page = self.send(cmd.OwnClaims(session, most=most))
        found: list[str] = []
        while isinstance(page, cmd.OwnClaimsPage):
            found += [claim.id for claim, _ in page.claims]
            if not page.more:
                assert found == sorted(self.table.by_session.get(session, ()))
                return
            page = self.send(cmd.OwnClaims(session, found[-1], most))

    @rule(above=st.integers(0, 50))
    def raise_tokens(self, above: int) -> None:
        assert self.send(cmd.RaiseTokens(above)) == cmd.Done()


TestBothStores = Stores.TestCase
TestBothStores.settings = settings(
    max_examples=3_000 if THOROUGH else 80,
    stateful_step_count=60 if THOROUGH else 40,
    deadline=None,
    # `make test` walks the same ways every time; `make marathon` looks for new ones.
    derandomize=not THOROUGH,
    suppress_health_check=list(HealthCheck),
)


def test_a_difference_is_seen() -> None:
    claim = Claim("s1-1", "s1", "s1/x", "lock", "a")
    same = Outcome(cmd.Done(), [], [])
    assert comparable(same) == comparable(Outcome(cmd.Done(), [], []))
    assert comparable(same) != comparable(Outcome(cmd.Done(more=True), [], []))
    assert comparable(same) != comparable(Outcome(cmd.Done(), [], [cmd.Notice("s1", claim.id, cmd.GRANTED)]))


@pytest.mark.parametrize("seed", range(1_000 if THOROUGH else 40))
def test_both_stores_go_the_same_long_way(seed: int) -> None:
    stores = Stores()
    stores.begin_watching()
    walk(stores, seed, steps=120)
