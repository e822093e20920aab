"""The database file of the server's store: opened, checked, read, and written batch by batch."""

from __future__ import annotations

import sqlite3
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from pathlib import Path

from holdfast.runtime import machine
from holdfast.runtime.disk import sync_folder
from holdfast.server import codec
from holdfast.server.recovery import Totals
from holdfast.server.store import StoreRefused
from holdfast.server.window import INFINITY, Key, Span, Window
from holdfast.server.witness import SoleUse

APPLICATION = 0x486F6C64
"""`Hold`: how SQLite's own header says whose file it is."""
VERSION = 1
OLDEST = (3, 35)
"""The SQLite that knows RETURNING."""
PAGE = 4096
PORTION = 2_000
"""How many records are read at a time."""
PATIENCE = 10.0
"""How long a commit waits for somebody who reads or copies the file with SQLite's own tools."""


@dataclass(frozen=True, slots=True)
class Head:
    """Which batch the state is of, and what it has to add up to."""

    first_number: int
    folded: int = 0
    """The last batch that is in the state. The log goes on from the next."""
    chain: int = 0
    """That batch's checksum."""
    at: float = 0.0
    """That batch's time, on the clock of the table."""
    count: int = 0
    sum: int = 0
    boot: str = ""
    offset: float = 0.0
    """What the clock of the table is ahead of this boot's clock."""


class Folding:
    """A window of the log on its way into the state, a portion with each commit."""

    def __init__(self, window: Window, upto: int, chain: int, at: float) -> None:
        self.window, self.upto, self.chain, self.at = window, upto, chain, at
        self.steps: list[Key | Span | tuple[Key, codec.Record]] = []
        self.done = -1

    def portion(self, size: int) -> Sequence[Key | Span | tuple[Key, codec.Record]]:
        """The next steps: first what goes, then what comes."""
        if self.done < 0:
            self.steps = [*self.window.spans, *self.window.drops, *self.window.records()]
            self.done = 0
        return self.steps[self.done : self.done + size]


class Disk:
    """One connection to the file, used by one thread at a time. Its errors are SQLite's."""

    def __init__(self, path: Path, address: str) -> None:
        self.path, self.address = path, address
        self.head = Head(0)
        self.wal_pages = 0
        """How much was written since the last checkpoint, about."""
        self._patience = PATIENCE
        self._sole_use: SoleUse | None = None
        self._connection: sqlite3.Connection | None = None

    def refuse(self, problem: str, advice: str) -> StoreRefused:
        return StoreRefused(self.address, problem, advice)

    # Opening

    def open(self) -> None:
        """Take the file for this process alone, and make it what it has to be."""
        if sqlite3.sqlite_version_info < OLDEST:
            needed = ".".join(map(str, OLDEST))
            raise self.refuse(f"this Python has SQLite {sqlite3.sqlite_version}", f"it takes {needed} or later")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._sole_use = SoleUse(self.path)
        except OSError as error:
            raise self.refuse(f"it cannot be opened ({error.strerror})", "may this user write there?") from error
        if not self._sole_use.take():
            raise self.refuse("another server uses it", "stop that one first, or give this one a store of its own")
        kind = machine.file_system(self.path)
        if kind in machine.NETWORK_FILE_SYSTEMS:
            raise self.refuse(f"it lies on a network file system ({kind})", "put it on a disk of this machine")
        self._patience = PATIENCE
        connection = sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
        self._connection = connection
        self._check(connection)
        connection.execute(f"PRAGMA page_size = {PAGE}")
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise self.refuse(f"it cannot use a write-ahead log (journal mode {mode})", "put it on another disk")
        connection.execute("PRAGMA synchronous = FULL")
        # On macOS a plain fsync leaves the data in the drive's cache. Elsewhere this changes nothing.
        connection.execute("PRAGMA fullfsync = ON")
        # Debian's SQLite writes zeros over what is deleted: with each part of the log, more than was ever in it.
        connection.execute("PRAGMA secure_delete = OFF")
        # A checkpoint that SQLite makes by itself keeps its errors to itself.
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        if not self._is_new():
            self.head = self._read_head()
            return
        self._create()

    @property
    def connection(self) -> sqlite3.Connection:
        assert self._connection is not None, "the store is not open"
        return self._connection

    def _check(self, connection: sqlite3.Connection) -> None:
        """Refuse another's file, and one of a later version, before anything in it is changed."""
        whose = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if whose != APPLICATION and (tables or whose):
            raise self.refuse("it is a database of something else", "choose another path")
        if version > VERSION:
            raise self.refuse(f"its version is {version}, this Holdfast knows {VERSION}", "upgrade Holdfast")

    def _is_new(self) -> bool:
        return not self.connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]

    def _create(self) -> None:
        # Counting starts at the time of creation, so that a deleted file never sends tokens back.
        self.head = Head(first_number=int(time.time() * 1_000_000))
        connection = self.connection
        connection.execute("BEGIN IMMEDIATE")
        for statement in files("holdfast.server").joinpath("sqlite_store.sql").read_text().split(";\n"):
            if statement.strip():
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("INSERT INTO head VALUES (?)", (self._sealed(self.head),))
        connection.execute("COMMIT")
        sync_folder(self.path.parent)

    # Reading

    def _read_head(self) -> Head:
        rows = self.connection.execute("SELECT body FROM head").fetchall()
        if len(rows) != 1:
            raise codec.Untrusted(f"it has {len(rows)} heads, not one")
        return Head(**codec.parse(codec.unseal(rows[0][0])[0]))

    def read_log(self) -> Iterator[codec.Batch]:
        """Every batch that is not in the state yet, without a gap."""
        self.head = self._read_head()
        number, chain = self.head.folded, self.head.chain
        for found, blob in self.connection.execute("SELECT number, batch FROM log ORDER BY number"):
            if found != number + 1:
                raise codec.Untrusted(f"batch {number + 1} is missing from its log (the next one is {found})")
            try:
                batch = codec.read_batch(blob, found, chain)
            except codec.Untrusted as error:
                raise codec.Untrusted(f"batch {found} of its log cannot be trusted: {error}") from error
            yield batch
            number, chain = batch.number, batch.sum

    def read_state(self) -> Iterator[list[tuple[str, int, str, str, int, bytes, int]]]:
        """Every record of the state, after its key and before its checksum, some at a time."""
        cursor = self.connection.execute("SELECT kind, arrival, one, two, number, record, sum FROM state")
        while portion := cursor.fetchmany(PORTION):
            yield portion

    def log_bytes(self) -> int:
        """How much there is to replay."""
        found = self.connection.execute("SELECT coalesce(sum(length(batch)), 0) FROM log").fetchone()[0]
        return int(found)

    # Writing

    def be_patient(self, seconds: float) -> None:
        """Wait for so long, from now on, for somebody who reads or copies the file."""
        if seconds != self._patience:
            self.connection.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")
            self._patience = seconds

    def append(self, number: int, blob: bytes) -> None:
        """Commit a batch. It is on disk when this returns."""
        self.wal_pages += len(blob) // PAGE + 3
        self.connection.execute("INSERT INTO log VALUES (?, ?)", (number, blob))

    def append_and_fold(self, number: int, blob: bytes, folding: Folding, size: int) -> bool:
        """Commit a batch, and with it `size` rows or steps of an earlier window; whether those were the last."""
        connection = self.connection
        connection.execute("BEGIN IMMEDIATE")
        self.append(number, blob)
        head, done = self._fold(folding, size)
        connection.execute("COMMIT")
        self.head = head
        folding.done = done
        return done == len(folding.steps)

    def _fold(self, folding: Folding, size: int) -> tuple[Head, int]:
        """The head after this, and how many steps are done then. All events of a watch may be one step, of any size."""
        steps = folding.portion(size)
        totals, left, done = Totals(self.head.count, self.head.sum), size, folding.done
        coming: list[tuple[str, int, str, str, int, bytes, int]] = []
        for step in steps:
            if left <= 0:
                break
            if len(step) == 2:
                key, record = step
                body = codec.dump(record)
                checksum = zlib.crc32(body)
                coming.append((*key, body, checksum))
                totals.add(checksum)
                left, done = left - 1, done + 1
                continue
            gone = self._delete_span(step, left) if isinstance(step, Span) else self._delete(step)
            for (checksum,) in gone:
                totals.take(checksum)
            self.wal_pages += len(gone)
            may_have_more = isinstance(step, Span) and len(gone) == left
            left -= max(1, len(gone))
            if not may_have_more:
                done += 1
        self.wal_pages += sum(len(row[5]) + 100 for row in coming) // PAGE + 3
        if coming:
            self.connection.executemany("INSERT INTO state VALUES (?, ?, ?, ?, ?, ?, ?)", coming)
        head = replace(self.head, count=totals.count, sum=totals.sum)
        if done == len(folding.steps):
            head = replace(head, folded=folding.upto, chain=folding.chain, at=folding.at)
            self.connection.execute("DELETE FROM log WHERE number <= ?", (folding.upto,))
        self._write_head(head)
        return head, done

    def _delete(self, key: Key) -> list[tuple[int]]:
        """Delete the record of a key; its checksum, if there is one."""
        where = "kind = ? AND arrival = ? AND one = ? AND two = ? AND number = ?"
        return self.connection.execute(f"DELETE FROM state WHERE {where} RETURNING sum", key).fetchall()

    def _delete_span(self, span: Span, most: int) -> list[tuple[int]]:
        """Delete so many records of a span; their checksums."""
        where, values = _where(span)
        key = "kind, arrival, one, two, number"
        some = f"SELECT {key} FROM state WHERE {where} LIMIT ?"
        found = self.connection.execute(f"DELETE FROM state WHERE ({key}) IN ({some}) RETURNING sum", (*values, most))
        return found.fetchall()

    def set_head(self, head: Head) -> None:
        """Commit another head."""
        self._write_head(head)
        self.head = head

    def _write_head(self, head: Head) -> None:
        self.connection.execute("UPDATE head SET body = ?", (self._sealed(head),))

    def _sealed(self, head: Head) -> bytes:
        return codec.seal(codec.dump(asdict(head)))[0]

    def roll_back(self) -> None:
        """Leave the transaction that failed."""
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def checkpoint(self, how: str = "PASSIVE") -> bool:
        """Copy the write-ahead log into the file, and sync it; False if somebody who reads the file keeps it from that.

        What is left is copied with a later one. It is in the log meanwhile, on disk.
        """
        busy, pages, copied = self.connection.execute(f"PRAGMA wal_checkpoint({how})").fetchone()
        self.wal_pages = 0
        return not busy and pages == copied

    def sizes(self) -> int:
        """What the file and its write-ahead log take on disk."""
        total = 0
        for path in (self.path, self.path.with_name(self.path.name + "-wal")):
            if path.exists():
                total += path.stat().st_size
        return total

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._sole_use is not None:
            self._sole_use.close()
            self._sole_use = None


def _where(span: Span) -> tuple[str, tuple[str | int, ...]]:
    where, values = "kind = ? AND arrival = 0 AND one = ?", [span.kind, span.one]
    if span.two is not None:
        where, values = where + " AND two = ?", [*values, span.two]
    if span.upto == INFINITY:
        return where, tuple(values)
    return where + " AND number <= ?", (*values, int(span.upto))
