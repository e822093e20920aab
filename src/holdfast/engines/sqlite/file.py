"""Opening the database: what it must lie on, whose it is, and what a new boot does to it."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from holdfast.errors import EngineFailure, Outcome
from holdfast.model import MAX_TOKEN
from holdfast.runtime import clock, machine

VERSION = 1
PATIENCE = 5.0
"""How long opening waits for a busy file."""
BOUND_AHEAD = 1_000_000
"""How far the bound on disk is kept ahead of the counter."""

_NOT_DONE = frozenset({"SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH"})
_ADVICE = {
    "SQLITE_BUSY": "another process has not finished its transaction; is one of them stopped?",
    "SQLITE_FULL": "the disk is full; nothing was written",
    "SQLITE_READONLY": "the file, or its folder, is read-only for this process",
    "SQLITE_CANTOPEN": "it cannot be opened: does its folder exist, and may this process write there?",
    "SQLITE_CORRUPT": "the file is damaged; move it away: tokens of a new one are larger than all before",
    "SQLITE_NOTADB": "the file is not a SQLite database; is the path right?",
    "SQLITE_IOERR": "reading or writing failed",
}


def unavailable(address: str, error: sqlite3.Error, committing: bool = False) -> EngineFailure:
    """The driver's error in our words. Only a failed commit leaves the outcome open."""
    code = getattr(error, "sqlite_errorname", None) or "SQLITE_ERROR"
    family = "_".join(code.split("_")[:2])
    problem = f"{_ADVICE[family]} ({error})" if family in _ADVICE else str(error)
    outcome: Outcome = "unknown" if committing and family not in _NOT_DONE else "not done"
    return EngineFailure(address, problem, outcome)


Make = Callable[..., sqlite3.Connection]
"""Opens a connection."""
FileIdentity = tuple[int, int]
"""Device and inode."""


class SqliteFile:
    """The database file: checked once a process, connected to as often as needed."""

    def __init__(self, path: Path, address: str, adopt: bool) -> None:
        self.path, self.address, self.adopt = path, address, adopt
        self.wake_folder = path.with_name(path.name + "-wake")
        self._checked = False

    def refuse(self, problem: str) -> EngineFailure:
        return EngineFailure(self.address, problem, "not done")

    def identity(self) -> FileIdentity | None:
        """What file has the path now; None if there is none. A file that is open keeps its inode for itself."""
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def check_again(self) -> None:
        """The path has another file now, of which nothing is known."""
        self._checked = False

    def connect(self, make: Make = sqlite3.Connection) -> tuple[sqlite3.Connection, FileIdentity]:
        """A connection, with the schema made and the boot settled, and the file that it is to."""
        until = clock.now() + PATIENCE
        while True:
            before = self.identity()
            try:
                connection = self._connect(make)
                after = self.identity()
                if after is not None and before == after:
                    return connection, after
                # It was made just now, or replaced meanwhile: it is not known which file this connection is to.
                connection.close()
                self._checked = False
                if clock.now() >= until:
                    raise self.refuse("the file is deleted or replaced again and again")
                continue
            except sqlite3.Error as error:
                # Where several open a new file at once, SQLite gives up without waiting.
                busy = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
                if not busy or clock.now() >= until:
                    raise unavailable(self.address, error) from error
            time.sleep(random.uniform(0.001, 0.02))

    def _connect(self, make: Make) -> sqlite3.Connection:
        connection = make(self.path, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            if not self._checked:
                self._check_place()
                self._check_content(connection)
            self._set_up(connection)
            if not self._checked:
                self._claim(connection)
                self._checked = True
        except BaseException:
            connection.close()
            raise
        return connection

    def _set_up(self, connection: sqlite3.Connection) -> None:
        # A step changes two or three pages, and the log takes each one whole: small ones cost less.
        connection.execute("PRAGMA page_size = 1024")
        with patience(connection, PATIENCE):
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise self.refuse(f"it cannot use a write-ahead log (journal mode {mode})")
        connection.execute("PRAGMA synchronous = NORMAL")
        # On macOS a plain fsync leaves the data in the drive's cache. Elsewhere this changes nothing.
        connection.execute("PRAGMA fullfsync = ON")
        connection.execute("PRAGMA wal_autocheckpoint = 2000")

    def _check_place(self) -> None:
        kind = machine.file_system(self.path)
        if kind in machine.NETWORK_FILE_SYSTEMS:
            raise self.refuse(f"it lies on a network file system ({kind}), whose file locks cannot be relied on")
        try:
            machine.boot_id()
        except OSError as error:
            raise self.refuse(f"{error}, so its sessions could outlive a reboot; choose another engine") from error

    def _check_content(self, connection: sqlite3.Connection) -> None:
        """Refuse a database of something else before anything in it is changed."""
        with patience(connection, PATIENCE):
            if connection.execute("SELECT 1 FROM sqlite_master").fetchone() is None:
                return
            columns = connection.execute("SELECT name FROM pragma_table_info('meta')").fetchall()
            known = "SELECT 1 FROM meta WHERE key = 'version'"
            if columns != [("key",), ("value",)] or connection.execute(known).fetchone() is None:
                raise self.refuse("it is a database of something else; choose another path")

    def _claim(self, connection: sqlite3.Connection) -> None:
        """Make the schema if it is missing, and settle under which boot the times in it count."""
        connection.execute("PRAGMA synchronous = FULL")
        with patience(connection, PATIENCE):
            connection.execute("BEGIN IMMEDIATE")
        try:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if "meta" not in tables:
                if tables:
                    raise self.refuse("it is a database of something else; choose another path")
                self._create(connection)
            self._settle(connection)
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
        connection.execute("PRAGMA synchronous = NORMAL")

    def _create(self, connection: sqlite3.Connection) -> None:
        for statement in files("holdfast.engines.sqlite").joinpath("schema.sql").read_text().split(";\n"):
            if statement.strip():
                connection.execute(statement)
        # Counting starts at the time of creation, so that a deleted file never sends tokens back.
        first = int(time.time() * 1_000_000)
        connection.execute("INSERT INTO counter VALUES (0, ?, ?)", (first, first + BOUND_AHEAD))
        self._write_meta(connection)

    def _write_meta(self, connection: sqlite3.Connection) -> None:
        meta = {
            "version": str(VERSION),
            "boot_id": machine.boot_id(),
            "machine_id": machine.machine_id(),
            "time_namespace": machine.time_namespace(),
        }
        connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", meta.items())

    def _settle(self, connection: sqlite3.Connection) -> None:
        """Compare the file's boot with ours. The same boot id is the same machine, whatever else differs."""
        meta: dict[str, str] = dict(connection.execute("SELECT key, value FROM meta").fetchall())
        if int(meta["version"]) > VERSION:
            raise self.refuse(
                f"its schema has version {meta['version']}, this Holdfast knows {VERSION}: upgrade Holdfast"
            )
        if meta["boot_id"] == machine.boot_id():
            if meta["time_namespace"] != machine.time_namespace():
                raise self.refuse("it is in use in another time namespace, where the boot clock differs")
            return
        if meta["machine_id"] != machine.machine_id() and not self.adopt:
            raise self.refuse(
                "it was last used on another machine; if nothing there uses it any more, add ?adopt=1 to the URL once"
            )
        self._begin_boot(connection)

    def _begin_boot(self, connection: sqlite3.Connection) -> None:
        """All earlier sessions are over. Counting goes on from the bound: the last numbers may not be on disk."""
        for table in ("sessions", "claims", "tombstones", "watches", "letters"):
            connection.execute(f"DELETE FROM {table}")
        connection.execute("UPDATE counter SET last = bound, bound = bound + ?", (BOUND_AHEAD,))
        # Cells stay. What was left of their time is not known, so it starts again: longer, never shorter.
        connection.execute("UPDATE cells SET expires_at = ? + keep WHERE keep IS NOT NULL", (clock.now(),))
        self._write_meta(connection)


def raise_bound(connection: sqlite3.Connection, needed: int, seconds: float) -> None:
    """Commit a bound that is far ahead again, synced to the disk before any number under it is used."""
    connection.execute("PRAGMA synchronous = FULL")
    try:
        with patience(connection, seconds):
            connection.execute("UPDATE counter SET bound = max(bound, min(?, ?))", (needed + BOUND_AHEAD, MAX_TOKEN))
    finally:
        connection.execute("PRAGMA synchronous = NORMAL")


class patience:
    """Let SQLite itself wait for a busy file for a while: for the rare steps outside a deadline."""

    def __init__(self, connection: sqlite3.Connection, seconds: float) -> None:
        self.connection, self.seconds = connection, seconds

    def __enter__(self) -> None:
        self.connection.execute(f"PRAGMA busy_timeout = {int(self.seconds * 1000)}")

    def __exit__(self, *_: object) -> None:
        self.connection.execute("PRAGMA busy_timeout = 0")
