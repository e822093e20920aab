"""The store of the lock server: what comes back, and what is refused."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from holdfast.core.table import Dictionary, apply
from holdfast.core.table.changes import Change, PutCounter
from holdfast.core.table.commands import Command, Enter, Open, Release, Renew
from holdfast.core.table.questions import OnName
from holdfast.core.table.rows import Session
from holdfast.core.urls import parse
from holdfast.errors import InvalidRequest
from holdfast.model import Claim, Granted
from holdfast.runtime import clock, machine
from holdfast.server import sqlite_store
from holdfast.server.sqlite_disk import Disk, Folding
from holdfast.server.sqlite_store import WAL_PAGES, SqliteStore
from holdfast.server.store import StoreBroken, StoreRefused
from holdfast.server.window import Window
from tests.core.crowd import replayed
from tests.core.test_stores_agree import Stores
from tests.core.walk import walk
from tests.servers.process import wait_until

TTL = 10.0
KEPT = ("rows", "counters", "tombstones", "cells", "watches", "letters", "claims_of", "mortal", "usage")


class Served:
    """A table and its store, as a server has them: one batch a command."""

    def __init__(
        self, path: Path, boot_clock: Callable[[], float] = clock.now, wall: Callable[[], float] = time.time
    ) -> None:
        self.store = SqliteStore(path, ballast_mib=0, boot_clock=boot_clock, wall=wall)
        self.table = self.store.load()

    async def do(self, command: Command) -> object:
        outcome = apply(command, self.store.now(), self.table.answer, self.table.put)
        await self.store.keep(outcome.changes)
        return outcome.reply

    async def take(self, name: str, session: str = "s1") -> int:
        claim = Claim(f"{session}-{name}", session, f"{session}/x", "lock", name, waits=False)
        reply = await self.do(Enter(claim))
        assert isinstance(reply, Granted), reply
        return reply.token

    def close(self) -> None:
        self.store.close()


async def begun(path: Path, *names: str, boot_clock: Callable[[], float] = clock.now) -> Served:
    served = Served(path, boot_clock)
    await served.do(Open(Session("s1", TTL, 0.0)))
    for name in names:
        await served.take(name)
    return served


def edit(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def refusal(path: Path) -> StoreRefused:
    with pytest.raises(StoreRefused) as refused:
        SqliteStore(path, ballast_mib=0).load()
    return refused.value


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "locks.db"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fold after a few batches, a few records at a time."""
    defaults = SqliteStore.__init__.__kwdefaults__ or {}
    monkeypatch.setattr(SqliteStore.__init__, "__kwdefaults__", {**defaults, "log_kib": 2})
    monkeypatch.setattr(sqlite_store, "PORTION", 3)
    monkeypatch.setattr(sqlite_store, "WAL_PAGES", 40)


def same(loaded: Dictionary, expected: Dictionary) -> None:
    for part in KEPT:
        found, wanted = getattr(loaded, part), getattr(expected, part)
        if part == "tombstones":
            found, wanted = ({key: stones for key, stones in side.items() if stones} for side in (found, wanted))
        assert found == wanted, part
    assert {id_: session.ttl for id_, session in loaded.sessions.items()} == {
        id_: session.ttl for id_, session in expected.sessions.items()
    }
    for kind, name in {(row.claim.kind, row.claim.name) for row in expected.rows.values()}:
        question = OnName(kind, name)
        assert loaded.answer(question, -1.0) == expected.answer(question, -1.0)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.usefixtures("small")
async def test_whatever_happened_comes_back_at_any_point(path: Path, seed: int) -> None:
    crowd = Stores()
    crowd.begin_watching()
    walk(crowd, seed, steps=150)
    random, kept = Random(seed), list[Change]()
    store = SqliteStore(path, ballast_mib=0, wall=lambda: 0.0)
    store.load()
    while len(kept) < len(crowd.changes):
        batch = crowd.changes[len(kept) : len(kept) + random.randint(1, 12)]
        await store.keep(batch)
        kept += batch
        if random.random() < 0.1:
            store.close()
            store = SqliteStore(path, ballast_mib=0, wall=lambda: 0.0)
            same(store.load(), replayed(kept))
    folded = sqlite3.connect(path)
    assert folded.execute("SELECT count(*) FROM state").fetchone()[0] > 0
    folded.close()
    store.close()


@pytest.mark.usefixtures("small")
async def test_locks_taken_and_given_back_leave_nothing_behind(path: Path) -> None:
    served = await begun(path, "held")
    for number in range(300):
        await served.take(f"n{number}")
        await served.do(Release(Claim(f"s1-n{number}", "s1", "s1/x", "lock", f"n{number}")))
    figures = served.store.figures()
    served.close()
    assert figures.batches == 602
    assert figures.log_bytes < 20_000
    assert figures.file_bytes < 600_000
    found = sqlite3.connect(path)
    assert found.execute("SELECT count(*) FROM state WHERE kind = 'R'").fetchone()[0] <= 3
    found.close()


# Tokens, time and sessions


async def test_tokens_go_on_after_a_restart(path: Path) -> None:
    served = await begun(path)
    token = await served.take("a")
    served.close()
    served = Served(path)
    assert await served.take("b") > token
    served.close()


async def test_a_session_that_was_alive_has_a_full_ttl_after_a_restart(path: Path) -> None:
    now = 1000.0
    served = await begun(path, "a", boot_clock=lambda: now)
    served.close()
    now += 3 * TTL
    served = Served(path, lambda: now)
    assert served.table.sessions["s1"].expires_at == served.store.now() + TTL
    served.close()


async def test_a_session_that_was_over_before_stays_over(path: Path) -> None:
    now = 1000.0
    served = await begun(path, "a", boot_clock=lambda: now)
    now += TTL
    await served.do(Open(Session("s2", TTL, 0.0)))
    claim = Claim("s2-a", "s2", "s2/x", "lock", "a", waits=False)
    assert isinstance(await served.do(Enter(claim)), Granted)
    served.close()
    served = Served(path, lambda: now)
    assert served.table.sessions["s1"].expires_at <= served.store.now()
    assert [row.id for row in served.table.holding("lock", "a", served.store.now())] == ["s2-a"]
    served.close()


async def test_the_full_ttl_that_a_start_gave_holds_over_another_one(path: Path) -> None:
    now = 1000.0

    def boot_clock() -> float:
        return now

    served = await begun(path, "a", boot_clock=boot_clock)
    for _ in range(3):
        served.close()
        now += TTL - 1
        served = Served(path, boot_clock)
        now += 1
        # Somebody else's batch, after the time that the session had at first, but before what it was given.
        await served.store.keep([])
    assert served.table.sessions["s1"].expires_at == served.store.now() + TTL - 1
    served.close()


async def test_a_heartbeat_that_came_with_the_last_batch_counts(path: Path) -> None:
    now = 1000.0
    served = await begun(path, "a", boot_clock=lambda: now)
    now += TTL - 1
    await served.do(Renew("s1"))
    now += TTL - 1
    await served.store.keep([])
    served.close()
    served = Served(path, lambda: now)
    assert served.table.sessions["s1"].expires_at == served.store.now() + TTL
    served.close()


async def test_the_clock_counts_the_time_between_two_starts_of_one_boot(path: Path) -> None:
    now = 1000.0
    served = await begun(path, boot_clock=lambda: now)
    before = served.store.now()
    served.close()
    now += 60
    served = Served(path, lambda: now)
    assert served.store.now() == pytest.approx(before + 60)
    served.close()


async def test_the_clock_goes_on_after_a_reboot_where_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    served = await begun(path, boot_clock=lambda: now)
    before = served.store.now()
    served.close()
    now = 5.0
    monkeypatch.setattr(machine, "boot_id", lambda: "another")
    for _ in range(2):
        served = Served(path, lambda: now)
        assert served.store.now() == pytest.approx(before)
        served.close()


async def test_the_clock_does_not_go_back_when_the_table_is_loaded_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    served = await begun(path, "a", boot_clock=lambda: now)
    now += 5
    before = served.store.now()
    # As if the disk had been too full at the start to say under which boot this is.
    monkeypatch.setattr(machine, "boot_id", lambda: "another")
    served.store.load()
    assert served.store.now() == before
    served.close()


# What is refused


async def test_two_servers_never_use_one_store(path: Path, tmp_path: Path) -> None:
    served = await begun(path, "a")
    (tmp_path / "other-name.db").hardlink_to(path)
    for name in ("locks.db", "other-name.db"):
        assert "another server uses it" in refusal(tmp_path / name).problem
    await served.take("b")
    served.close()
    Served(path).close()


async def test_a_later_version_is_refused(path: Path) -> None:
    (await begun(path)).close()
    edit(path, "PRAGMA user_version = 2")
    assert refusal(path).advice == "upgrade Holdfast"


def test_a_database_of_something_else_is_refused_and_left_alone(path: Path) -> None:
    edit(path, "CREATE TABLE theirs (x)")
    before = path.read_bytes()
    assert "something else" in refusal(path).problem
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    path.write_bytes(b"not a database at all" * 400)
    refusal(path)
    assert path.read_bytes() == b"not a database at all" * 400


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        ("DELETE FROM log WHERE number = 3", "batch 3 is missing"),
        ("DELETE FROM log WHERE number = (SELECT max(number) FROM log)", "was kept and answered"),
        ("DELETE FROM log", "was kept and answered"),
        ("UPDATE log SET batch = substr(batch, 1, length(batch) - 1) WHERE number = 4", "batch 4"),
        (
            "UPDATE log SET batch = CAST(replace(CAST(batch AS TEXT), 'lock', 'look') AS BLOB) WHERE number = 4",
            "checksum",
        ),
        ("DELETE FROM head", "heads"),
        ("UPDATE head SET body = CAST(replace(CAST(body AS TEXT), '\"count\":0', '\"count\":1') AS BLOB)", "checksum"),
    ],
)
async def test_a_store_that_was_tampered_with_is_refused(path: Path, damage: str, named: str) -> None:
    (await begun(path, "a", "b", "c", "d")).close()
    edit(path, damage)
    assert named in refusal(path).problem


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM state WHERE arrival = (SELECT max(arrival) FROM state)",
        "UPDATE state SET record = CAST(replace(CAST(record AS TEXT), 'lock', 'look') AS BLOB) WHERE kind = 'R'",
        "UPDATE state SET sum = sum + 1 WHERE kind = 'S'",
        "INSERT INTO state SELECT kind, arrival, one, two, 7, record, sum FROM state WHERE kind = 'S'",
        "UPDATE state SET one = one || 'x' WHERE kind = 'R' AND arrival = (SELECT max(arrival) FROM state)",
        "UPDATE state SET arrival = arrival + 1 WHERE kind = 'R' AND arrival = (SELECT max(arrival) FROM state)",
    ],
)
@pytest.mark.usefixtures("small")
async def test_a_state_that_lost_or_changed_a_record_is_refused(path: Path, damage: str) -> None:
    (await begun(path, *"abcdefghijklmnopqrstuvwxyz")).close()
    edit(path, damage)
    assert "state" in refusal(path).problem


@pytest.mark.usefixtures("small")
async def test_a_torn_page_anywhere_in_the_file_is_refused_or_harmless(path: Path, tmp_path: Path) -> None:
    """Half of each page in turn is overwritten: a start either says so, or has all that was kept."""
    served = await begun(path, *(f"lock-{number}" for number in range(120)))
    rows = dict(served.table.rows)
    served.close()
    whole, refused = path.read_bytes(), 0
    for number, start in enumerate(range(0, len(whole), 4096)):
        copy = tmp_path / f"{number}.db"
        copy.write_bytes(whole[: start + 2048] + b"\xa5" * 2048 + whole[start + 4096 :])
        shutil.copy(f"{path}-witness", f"{copy}-witness")
        store = SqliteStore(copy, ballast_mib=0)
        try:
            assert store.load().rows == rows
        except StoreRefused:
            refused += 1
        store.close()
    assert refused >= 5


async def test_a_lost_write_ahead_log_is_noticed(path: Path, tmp_path: Path) -> None:
    served = await begun(path, "a", "b")
    copy = tmp_path / "copy.db"
    for ending in ("", "-witness"):
        shutil.copy(f"{path}{ending}", f"{copy}{ending}")
    assert "the end is lost" in refusal(copy).problem
    served.close()


async def test_the_end_of_a_torn_write_ahead_log_is_noticed_if_it_was_answered(path: Path, tmp_path: Path) -> None:
    served = await begun(path, "a", "b")
    copy = tmp_path / "copy.db"
    for ending in ("", "-wal", "-witness"):
        shutil.copy(f"{path}{ending}", f"{copy}{ending}")
    served.close()
    log = Path(f"{copy}-wal")
    log.write_bytes(log.read_bytes()[:-2000])
    assert "the end is lost" in refusal(copy).problem


async def test_the_end_of_a_torn_write_ahead_log_that_nobody_was_told_of_is_forgotten(
    path: Path, tmp_path: Path
) -> None:
    served = await begun(path, "a", "b")
    copy = tmp_path / "copy.db"
    shutil.copy(f"{path}-witness", f"{copy}-witness")
    await served.take("c")
    for ending in ("", "-wal"):
        shutil.copy(f"{path}{ending}", f"{copy}{ending}")
    served.close()
    log = Path(f"{copy}-wal")
    log.write_bytes(log.read_bytes()[:-2000])
    served = Served(copy)
    assert sorted(served.table.rows) == ["s1-a", "s1-b"]
    served.close()


async def test_a_copy_made_while_it_runs_starts_with_larger_tokens(path: Path, tmp_path: Path) -> None:
    served = await begun(path, "a")
    copy = tmp_path / "copy.db"
    edit(path, f"VACUUM INTO '{copy}'")
    later = [await served.take(f"later-{number}") for number in range(50)]
    served.close()
    # Also if it is killed before it has kept anything of its own.
    Served(copy).close()
    served = Served(copy)
    assert set(served.table.rows) == {"s1-a"}
    assert await served.take("b") > max(later)
    served.close()


async def test_a_snapshot_of_all_files_starts_with_larger_tokens(path: Path, tmp_path: Path) -> None:
    served = await begun(path, "a")
    copy = tmp_path / "copy.db"
    for ending in ("", "-wal", "-witness"):
        shutil.copy(f"{path}{ending}", f"{copy}{ending}")
    later = [await served.take(f"later-{number}") for number in range(50)]
    served.close()
    served = Served(copy)
    assert set(served.table.rows) == {"s1-a"}
    assert await served.take("b") > max(later)
    served.close()


async def test_tokens_go_on_after_a_restart_with_a_clock_that_is_behind(path: Path) -> None:
    served = await begun(path)
    token = await served.take("a")
    served.close()
    served = Served(path, wall=lambda: 0.0)
    assert await served.take("b") == token + 1
    served.close()


async def test_a_ballast_that_cannot_be_given_breaks_the_store_instead_of_its_thread(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room() -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    served = await begun(path)
    ballast = Path(f"{path}-ballast")
    ballast.unlink()
    ballast.mkdir()
    monkeypatch.setattr(sqlite_store, "WAL_PAGES", 0)
    monkeypatch.setattr(served.store._disk, "checkpoint", no_room)

    # The first is answered before the log is copied; the next may be on its way when that fails.
    async def take_three() -> None:
        for number in range(3):
            await served.take(f"n{number}")

    with pytest.raises(StoreBroken):
        await asyncio.wait_for(take_three(), 30)

    served.close()


async def test_after_what_a_refusal_names_was_moved_away_a_new_store_starts(path: Path, tmp_path: Path) -> None:
    (await begun(path, "a")).close()
    path.write_bytes(b"damaged" * 1000)

    told = str(refusal(path))

    away = tmp_path / "away"
    away.mkdir()
    for file in [file for file in tmp_path.glob("*.db*") if file.name in told]:
        file.rename(away / file.name)
    served = await begun(path, "a")
    assert set(served.table.rows) == {"s1-a"}
    served.close()


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite://host/x.db", "sqlite:///x.db?ballast=1", "sqlite:///x?ballast_mib=a"]
)
def test_an_address_that_makes_no_sense_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest):
        SqliteStore.from_url(parse(url))


def thread_rests(store: SqliteStore) -> None:
    """Wait for it: when it tells of a batch it is not done yet."""
    wait_until(lambda: store._given == store._finished, 20, "the thread rests")


async def test_a_batch_that_all_wait_for_is_kept_at_once(path: Path) -> None:
    served = await begun(path)
    claim = Claim("s1-a", "s1", "s1/x", "lock", "a")
    outcome = apply(Enter(claim), served.store.now(), served.table.answer, served.table.put)

    thread_rests(served.store)
    assert served.store.keep(outcome.changes, may_block=True).done()
    served.close()
    again = Served(path)
    assert "s1-a" in again.table.rows
    again.close()


def test_all_events_of_a_watch_go_a_few_with_each_commit(path: Path) -> None:
    most, few = 100, 30
    disk = Disk(path, "a store")
    disk.open()
    number = 0

    def fold(window: Window) -> Iterator[int]:
        """How many records the state has after each commit."""
        nonlocal number
        folding, ended = Folding(window, 0, 0, 0.0), False
        while not ended:
            number += 1
            ended = disk.append_and_fold(number, b"", folding, few)
            yield disk.connection.execute("SELECT count(*) FROM state").fetchone()[0]

    coming, going = Window(), Window()
    coming.absorb([("L", session, "w", event, []) for session in ("one", "two") for event in range(most)])
    going.absorb([("w", "one", "w"), ("L", "two", "w", most, [])])

    assert list(fold(coming))[-1] == 2 * most
    left = [2 * most, *fold(going)]
    assert left[-1] == most + 1
    assert max(before - after for before, after in pairwise(left)) == few
    assert disk.head.count == left[-1]
    disk.close()


@pytest.mark.parametrize("why", ["folding", "log", "thread"])
async def test_what_takes_longer_is_left_to_the_thread(path: Path, why: str) -> None:
    served = await begun(path)
    store = served.store
    thread_rests(store)
    if why == "folding":
        store._folding = Folding(Window(), store._number, store._chain, 0.0)
    elif why == "log":
        store._disk.wal_pages = WAL_PAGES
    else:
        store._given += 1

    done = store.keep([], may_block=True)
    assert not done.done()
    await done
    served.close()


async def test_the_loop_waits_for_nobody_who_writes_to_the_file(path: Path) -> None:
    served = await begun(path)
    thread_rests(served.store)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    done = served.store.keep([PutCounter(0, served.table.last(0) + 1)], may_block=True)
    assert not done.done()
    other.execute("ROLLBACK")
    other.close()
    await done
    served.close()
