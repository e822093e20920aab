"""Today's code opens a store that was recorded, of clients that have gone, and sees what they had.

`recorded/old_stores` has each store in a form that can be put back (SQL text, keys of etcd), and what was seen in it
when it was recorded: holders, waiters, cells. Each test puts a copy back, looks, and goes on: tokens grow above all
that the store has given, a lock goes to the next waiter, a grant that was handed over is adopted.
"""

from __future__ import annotations

import base64
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

import holdfast
from tests.records.dumps import Etcd
from tests.records.playing import played
from tests.records.record import Record
from tests.records.resp_text import Names
from tests.records.transcript import Connection, pack
from tests.servers.lock_server import LockServer
from tests.servers.lock_store_in_etcd import leading, lock_store_in_etcd, new_etcd

PRAGMAS = ("page_size", "application_id", "user_version")
ROOT = b"/holdfast-server/1/holdfast/"
OF_A_LEADER = (ROOT + b"live/leader", ROOT + b"live/beat", ROOT + b"member/")
"""Keys that hang on the lease of a server that has gone."""
STORE = "sqlite:///locks.db?ballast_mib=1&log_kib=4"
ID, SECRET = "gone000001", "secret-of-gone-00000001"
LEFT_BEHIND = (
    f"HF.OPEN {ID} {SECRET} 600000 APP gone HOST web-9 PID 9",
    f"HF.ACQUIRE {ID}-1 raw/held NOTE mine",
    f"HF.ACQUIRE {ID}-2 raw/held OWNER other",
    f"HF.ACQUIRE {ID}-3 raw/broken",
    f"HF.WATCH {ID} w raw/",
    "HF.BREAK raw/broken FORCE",
)
"""What a client with a known secret does before it goes."""
COMES_BACK = (
    f"HF.RESUME {ID} another-secret-00000000",
    f"HF.RESUME {ID} {SECRET}",
    f"HF.CLAIMS {ID}",
    f"HF.FETCH {ID} w 0",
    f"HF.ACQUIRE {ID}-3 raw/broken",
    f"HF.RELEASE {ID}-1",
    f"HF.LOOK {ID}-2",
    f"HF.CLOSE {ID}",
)
"""What it does when it comes back, to a server that has another process and the same store."""


# What one sees, and how it goes on


def seen(locks: holdfast.Client) -> list[str]:
    """Every lock in use, and the values of cells, as recorded text."""
    lines = []
    for info in locks.list():
        lines.append(f"{info.kind} {info.name}" + (f" limit={info.limit}" if info.limit else ""))
        lines += [f"  held by {_party(each)}" for each in info.holders]
        lines += [f"  awaited by {_party(each)}" for each in info.waiters]
    lines.append(f"cell config: {locks.cell('config').get()}")
    lines.append(f"log orders: {locks.log('orders').read()}")
    lines.append(f"leader: {_leader(locks)}")
    return lines


def _party(each: Any) -> str:
    """One who holds or waits, without the times."""
    shown = {"token": each.token, "slot": each.slot, "note": each.note or None, "thread": each.thread or None}
    return f"{each.owner} ({each.app}) {each.mode} " + " ".join(f"{k}={v}" for k, v in shown.items() if v is not None)


def _leader(locks: holdfast.Client) -> str:
    leader = locks.election("scheduler").leader()
    return "none" if leader is None else leader.value


def goes_on(locks: holdfast.Client, view: list[str], offers: dict[str, str]) -> list[str]:
    """What comes of a few steps in a store that has been seen; tokens have to grow above all that it had."""
    highest = max(int(number) for line in view for number in re.findall(r"\b\d{16}\b", line))
    assert locks.lock("account/3").try_acquire() is None
    assert locks.semaphore("gpu", limit=2).try_acquire() is None
    fresh = locks.lock("fresh").acquire()
    adopted = locks.adopt(offers["offered"])
    assert highest < fresh.token < adopted.token
    broken = locks.break_lock("orders/1", force=True)
    held = [each.app for each in locks.inspect("orders/1").holders]
    version = locks.cell("config").set("new", version=locks.cell("config").get()[1])
    assert version > highest
    fresh.release()
    adopted.release()
    return [
        f"latch: {locks.latch('ready', count=3).count_down()} to go",
        f"once: {locks.once('payment:77').run(lambda grant: 'done again')}",
        f"log: length {locks.log('orders').append(['later'], expected=3)}",
        f"adopted: {adopted.name}",
        f"broken: {broken}, then held by {held}",
    ]


def came_back(port: int) -> list[str]:
    """What a client with a known secret is answered when it comes back."""
    with closing_connection(port) as connection:
        return [f"{request}\n  < {answer(connection, request)}" for request in COMES_BACK]


def answer(connection: Connection, request: str) -> str:
    connection.send(pack([word.encode() for word in request.split()]))
    # A server that has started again counts on from the time of day.
    return re.sub(r"<token\+\d{4,}>", "<higher token>", connection.reply())


@contextmanager
def closing_connection(port: int) -> Iterator[Connection]:
    connection = Connection(port, Names())
    try:
        yield connection
    finally:
        connection.socket.close()


# SQLite as text


def dumped(path: Path, offers: dict[str, str]) -> str:
    """A database as SQL that makes it again, with the tickets that are still to be adopted."""
    with closing(sqlite3.connect(path)) as connection:
        settings = [f"PRAGMA {name} = {connection.execute(f'PRAGMA {name}').fetchone()[0]};" for name in PRAGMAS]
        statements = list(connection.iterdump())
    return "\n".join([*_offers_as_text(offers, "--"), *settings, *statements]) + "\n"


def put_back(text: str, path: Path) -> None:
    """Make the database again."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(text)


def _offers_as_text(offers: dict[str, str], mark: str) -> list[str]:
    return [f"{mark} offer {name}: {offer}" for name, offer in sorted(offers.items())]


def offers_in(text: str) -> dict[str, str]:
    return dict(re.findall(r"^\S+ offer (\S+): (.*)$", text, re.MULTILINE))


# The engine's file


def record_sqlite_engine(folder: Path) -> str:
    path = folder / "recorded.db"
    with played(f"sqlite:///{path}") as story:
        pass
    return dumped(path, story.offers)


def as_of_this_boot(path: Path, folder: Path) -> None:
    """Let the times in a file count on this machine, from now: it was recorded on another one, or before a boot."""
    other = folder / "of-this-boot.db"
    with holdfast.connect(f"sqlite:///{other}") as locks:
        locks.lock("k").acquire().release()
    with closing(sqlite3.connect(other)) as connection:
        meta = connection.execute("SELECT value, key FROM meta").fetchall()
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    with closing(sqlite3.connect(path)) as connection:
        connection.executemany("UPDATE meta SET value = ? WHERE key = ?", meta)
        connection.execute("UPDATE sessions SET expires_at = ? + ttl", (now,))
        connection.execute("UPDATE cells SET expires_at = ? + keep WHERE keep IS NOT NULL", (now,))
        connection.commit()


def engine_file(text: str, folder: Path) -> Path:
    path = folder / "copy.db"
    put_back(text, path)
    return path


def test_an_old_file_of_the_engine_is_read(record: Callable[[str], Record], tmp_path: Path) -> None:
    kept = record("old_stores/sqlite.sql")
    if kept.recording:
        kept.write(record_sqlite_engine(tmp_path))
    path = engine_file(kept.text(), tmp_path)
    as_of_this_boot(path, tmp_path)

    with holdfast.connect(f"sqlite:///{path}", namespace="story", app="later") as locks:
        view = seen(locks)
        lines = [*view, "", *goes_on(locks, view, offers_in(kept.text()))]

    record("old_stores/sqlite.txt").compare("\n".join(lines) + "\n")


def test_an_old_file_of_another_machine_is_adopted_without_its_sessions(
    record: Callable[[str], Record], tmp_path: Path
) -> None:
    path = engine_file(record("old_stores/sqlite.sql").text(), tmp_path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE meta SET value = 'another' WHERE key IN ('boot_id', 'machine_id')")
        ((last,),) = connection.execute("SELECT last FROM counter").fetchall()
        connection.commit()
    with pytest.raises(holdfast.EngineUnavailable, match="adopt=1"):
        holdfast.connect(f"sqlite:///{path}", namespace="story")

    with holdfast.connect(f"sqlite:///{path}?adopt=1", namespace="story") as locks:
        assert locks.list() == []
        assert locks.cell("config").get()[0] == {"colour": "Grün"}
        assert locks.log("orders").length() == 3
        with locks.lock("orders/1", wait=0.0) as grant:
            assert grant.token > last


# The lock server's stores


def record_server_sqlite() -> str:
    with LockServer(store=STORE) as server:
        with played(server.url) as story:
            leave_something_behind(server.port)
            server.kill()
        return dumped(server.folder / "locks.db", story.offers)


def record_server_etcd() -> str:
    with lock_store_in_etcd("&log_kib=4") as (etcd, server):
        with played(server.url) as story:
            leave_something_behind(server.port)
            server.kill()
        keys = [key for key in Etcd(etcd.endpoint).keys(ROOT) if not key["key"].startswith(OF_A_LEADER)]
    lines = [f"{key['key'].decode()} {base64.b64encode(key['value']).decode()}" for key in keys]
    return "\n".join([*_offers_as_text(story.offers, "#"), *lines]) + "\n"


def leave_something_behind(port: int) -> None:
    with closing_connection(port) as connection:
        for request in LEFT_BEHIND:
            assert not answer(connection, request).startswith("-")


def test_an_old_file_of_the_server_is_read(record: Callable[[str], Record]) -> None:
    kept = record("old_stores/server-sqlite.sql")
    if kept.recording:
        kept.write(record_server_sqlite())
    server = LockServer(store=STORE)
    put_back(kept.text(), server.folder / "locks.db")

    with server:
        record("old_stores/server-sqlite.txt").compare(seen_on(server, offers_in(kept.text())))


def test_old_keys_of_a_cluster_are_read(record: Callable[[str], Record]) -> None:
    kept = record("old_stores/server-etcd.keys")
    if kept.recording:
        kept.write(record_server_etcd())
    with cluster_keys_put_back(kept.text()) as server:
        record("old_stores/server-etcd.txt").compare(seen_on(server, offers_in(kept.text())))


@contextmanager
def cluster_keys_put_back(text: str) -> Iterator[LockServer]:
    """A server that leads on an etcd with these keys."""
    with new_etcd() as etcd:
        store = Etcd(etcd.endpoint)
        for line in text.splitlines():
            if not line.startswith("#"):
                key, _, value = line.partition(" ")
                store.put(key.encode(), base64.b64decode(value))
        with leading(etcd) as server:
            yield server


def seen_on(server: LockServer, offers: dict[str, str]) -> str:
    with holdfast.connect(server.url, namespace="story", app="later") as locks:
        view = seen(locks)
        return "\n".join([*view, "", *goes_on(locks, view, offers), "", *came_back(server.port)]) + "\n"
