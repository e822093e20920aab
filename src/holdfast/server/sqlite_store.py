"""`--store sqlite:///path`: the table of one server in a file. What `keep` has returned for is on disk.

A batch is one blob and one commit, made in a thread while the loop reads the next; where all wait for this one, so
that there is nothing to read, and the disk is quick, by the loop itself. Now and then the log is folded into the state,
a portion with each commit, so that neither the file nor a start grows with the past.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import queue
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from holdfast.core.table import Dictionary
from holdfast.core.table.changes import Change
from holdfast.core.urls import Url
from holdfast.errors import InvalidRequest
from holdfast.runtime import clock, machine
from holdfast.server import codec, recovery
from holdfast.server.ballast import Ballast
from holdfast.server.options import whole
from holdfast.server.sqlite_disk import PATIENCE, Disk, Folding
from holdfast.server.store import Figures, StoreBroken, StoreFull, StoreRefused
from holdfast.server.window import Window
from holdfast.server.witness import Seen, Witness

log = logging.getLogger("holdfast.server")

BALLAST_MIB = 16
LOG_KIB = 4096
"""How much log there is before it is folded."""
PORTION = 32
"""How many records a commit folds at least; one of many changes folds four times as many, to keep ahead of them."""
MOST_AHEAD = 2_000
"""How many records more than it has a commit folds at most: about 15 ms."""
WAL_PAGES = 2_000
"""How much write-ahead log there is before it is copied into the file."""


class Job(NamedTuple):
    """A batch on its way to the disk."""

    number: int
    blob: bytes
    chain: int
    changes: int
    records: int
    began: float
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[None]


class SqliteStore:
    """A lock table in one SQLite file."""

    options = frozenset({"ballast_mib", "log_kib"})
    shortest_ttl = patience = 0.0

    def __init__(
        self,
        path: Path,
        *,
        ballast_mib: int = BALLAST_MIB,
        log_kib: int = LOG_KIB,
        boot_clock: Callable[[], float] = clock.now,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.address = f"sqlite:///{path}"
        self._boot_clock, self._wall = boot_clock, wall
        self._log_most = log_kib << 10
        self._disk = Disk(path, self.address)
        self._witness = Witness(path)
        self._ballast = Ballast(path, ballast_mib << 20, boot_clock)
        self._offset = 0.0
        self._number = self._chain = 0
        self._at = 0.0
        self._owed: list[codec.Record] = []
        """What the start gave sessions and counters, to be kept with the first batch: from that on, time counts too.

        Until then nobody has had a token, and another start gives the same again.
        """
        self._window = Window()
        self._folding: Folding | None = None
        self._highest = 0
        self._log_bytes = self._unfolded_bytes = 0
        self._batches = self._changes = self._bytes = 0
        self._seconds = 0.0
        self._trouble: StoreBroken | None = None
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._under_way = False
        self._given = self._finished = 0
        """How many jobs the thread was given, and has done with: it rests when it is as many."""
        self._held_up = False
        """Whether somebody who reads the file keeps the write-ahead log from being copied."""

    @classmethod
    def from_url(cls, url: Url) -> SqliteStore:
        """The store of `sqlite:///path?ballast_mib=16&log_kib=4096`."""
        url.check_options(cls.options)
        if not url.path or url.hosts:
            raise InvalidRequest("store", str(url), "it looks like sqlite:///locks.db or sqlite:////absolute/locks.db")
        ballast_mib, log_kib = whole(url, "ballast_mib", BALLAST_MIB), whole(url, "log_kib", LOG_KIB)
        return cls(Path(url.path), ballast_mib=ballast_mib, log_kib=log_kib)

    # The start

    def load(self) -> Dictionary:
        """The table as of the last batch that was kept."""
        if self._trouble is not None:
            raise self._trouble
        collecting = gc.isenabled()
        # Millions of objects that all stay: looking through them again and again only costs time.
        gc.disable()
        try:
            with self._refusing():
                return self._load()
        finally:
            if collecting:
                gc.enable()

    def _load(self) -> Dictionary:
        opened = self._thread is None
        if opened:
            self._open()
        window, head = Window(), self._disk.head
        self._number, self._chain, self._at, self._log_bytes = head.folded, head.chain, head.at, 0
        for batch in self._disk.read_log():
            window.absorb(batch.records)
            self._number, self._chain, self._at = batch.number, batch.sum, batch.at
        self._check_end(self._witness.read())
        head = self._disk.head
        state = recovery.read_state(self._disk.read_state(), recovery.Totals(head.count, head.sum))
        table = recovery.rebuild(head.first_number, state, window)
        # It may be a copy, and others may have had tokens since: no file can tell, because a snapshot has the witness
        # of its own moment. The time of day is ahead of them.
        raised = recovery.raise_counters(table, int(self._wall() * 1_000_000))
        if opened:
            self._settle_clock()
        self._owed = codec.records([*raised, *recovery.grace(table, self.now(), self._at)])
        self._log_bytes = self._disk.log_bytes()
        self._folding = Folding(window, self._number, self._chain, self._at) if self._log_bytes or window else None
        self._start_window(table)
        self._write_head(table.first_number)
        if opened:
            self._begin()
        return table

    def _open(self) -> None:
        try:
            self._disk.open()
        except sqlite3.Error as error:
            if not is_full_at_the_start(error):
                raise
            # A disk that has become full since: with the reserve there is room to start.
            self._disk.close()
            self._ballast.give()
            self._disk.open()
        else:
            self._ballast.take()

    def _check_end(self, seen: Seen | None) -> None:
        if seen is None or seen.number < self._number:
            return
        if seen.number > self._number:
            raise codec.Untrusted(
                f"it ends at batch {self._number}, but batch {seen.number} was kept and answered: the end is lost"
            )
        if seen.sum != self._chain:
            raise codec.Untrusted(f"its batch {self._number} is not the one that was answered")

    def _settle_clock(self) -> None:
        """Go on with the time of the last batch; within one boot, count the time between as well."""
        try:
            boot = f"{machine.boot_id()} {machine.time_namespace()}"
        except OSError:
            boot = secrets.token_hex(16)  # every start is a new boot then: what lived gets a full ttl
        head = self._disk.head
        now = self._boot_clock()
        same = head.boot == boot and now + head.offset >= self._at
        self._offset = head.offset if same else self._at - now
        self._boot = boot

    def _write_head(self, first_number: int) -> None:
        """Say under which boot times count from now on; and write all that was read once more.

        After a sync that failed, the page cache may show what the disk does not have. What the write-ahead log
        holds is copied into the file and synced, so what the table rests on is on disk again.
        """
        head = replace(self._disk.head, boot=self._boot, offset=self._offset, first_number=first_number)
        try:
            self._disk.set_head(head)
            copied = self._disk.checkpoint("TRUNCATE")
        except sqlite3.Error as error:
            if not is_full(error):
                raise
            self._disk.roll_back()
            self._disk.head = head
            self._ballast.give()
        else:
            if not copied and self._thread is None:
                raise StoreRefused(
                    self.address,
                    "another program reads it, so that it cannot be written out and checked",
                    "let that one end, then start again",
                )

    def _start_window(self, table: Dictionary) -> None:
        # Rows of one bucket come in the order of its counter. With several, any of them may be in the state.
        one = set(table.counters) <= {0}
        self._highest = table.last(0)
        self._window = Window(float(self._highest)) if one else Window()
        self._unfolded_bytes = 0

    def _begin(self) -> None:
        self._witness.open()
        self._bear_witness(Seen(self._number, self._chain))
        self._thread = threading.Thread(target=self._work, name="holdfast-store", daemon=True)
        self._thread.start()

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        advice = (
            f"nothing was changed; restore a copy, or move it away together with {self._witness.path.name} (and its "
            "-wal and -shm): the tokens of a new store are larger"
        )
        try:
            yield
        except codec.TooNew as error:
            raise self._refused(f"it was written by a later version ({error})", "upgrade Holdfast") from error
        except codec.Untrusted as error:
            raise self._refused(f"it cannot be trusted: {error}", advice) from error
        except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
            raise self._refused(f"it cannot be trusted: it makes no sense ({error!r})", advice) from error
        except sqlite3.Error as error:
            family = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if family in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                raise self._refused(f"it cannot be trusted: the file is damaged ({error})", advice) from error
            if is_full_at_the_start(error):
                raise self._refused("the disk is full", "make room, then start again") from error
            raise self._refused(f"it cannot be read ({error})", "look at the disk and its rights") from error
        except OSError as error:
            raise self._refused(f"it cannot be used ({error})", "look at the disk and its rights") from error
        except StoreRefused:
            self.close()
            raise

    def _refused(self, problem: str, advice: str) -> StoreRefused:
        self.close()
        return StoreRefused(self.address, problem, advice)

    def may_answer(self) -> bool:
        """There is no other server."""
        return True

    # The clock

    def now(self) -> float:
        """The clock of the table."""
        return self._boot_clock() + self._offset

    # Keeping

    def keep(self, changes: Sequence[Change], may_block: bool = False) -> asyncio.Future[None]:
        """Done when the batch is on disk."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        if self._trouble is not None:
            done.set_exception(self._trouble)
            return done
        assert not self._under_way, "one batch at a time"
        records, self._owed = [*self._owed, *codec.records(changes)], []
        self._at = self.now()
        self._number += 1
        blob, self._chain = codec.write_batch(self._number, self._at, records, self._chain)
        self._window.absorb(records)
        if records and records[-1][0] == "N":
            assert records[-1][1] == 0, "the server's table has one counter"
            self._highest = max(self._highest, records[-1][2])
        self._under_way = True
        job = Job(self._number, blob, self._chain, len(changes), len(records), self._boot_clock(), loop, done)
        if not (may_block and self._has_nothing_else_to_do() and self._write_here(job)):
            self._given += 1
            self._jobs.put(job)
        return done

    def _has_nothing_else_to_do(self) -> bool:
        """Whether it is this batch alone: the thread rests, and neither folding nor a checkpoint is due."""
        rests = self._given == self._finished
        return rests and self._folding is None and self._disk.wal_pages < WAL_PAGES

    def _write_here(self, job: Job) -> bool:
        """Keep a batch without the thread, which rests; False if there is somebody to wait for."""
        try:
            trouble = self._write(job, patience=0)
        except sqlite3.OperationalError:
            return False
        self._settle(job, trouble)
        return True

    def _count(self, job: Job) -> None:
        size = len(job.blob)
        self._unfolded_bytes += size
        self._log_bytes += size
        self._batches += 1
        self._changes += job.changes
        self._bytes += size
        self._seconds += self._boot_clock() - job.began

    def _turn_window(self) -> None:
        """Begin to fold what has come together, if there is enough and nothing is being folded."""
        if self._folding is None and self._unfolded_bytes >= self._log_most:
            self._folding = Folding(self._window, self._number, self._chain, self._at)
            self._log_bytes = self._unfolded_bytes
            bounded = self._window.watermark != float("inf")
            self._window = Window(float(self._highest)) if bounded else Window()
            self._unfolded_bytes = 0

    def _settle(self, job: Job, trouble: Exception | None) -> None:
        """A batch is kept, or is not."""
        self._under_way = False
        if trouble is None:
            self._count(job)
            self._turn_window()
        if job.done.cancelled():
            return
        if trouble is None:
            job.done.set_result(None)
        else:
            job.done.set_exception(trouble)

    # In the thread, or while it rests

    def _write(self, job: Job, patience: float) -> StoreFull | StoreBroken | None:
        """Bring a batch to the disk, and say what went wrong. Without patience it raises if somebody is in the way."""
        try:
            self._disk.be_patient(patience)
            portion = max(PORTION, min(4 * job.records, job.records + MOST_AHEAD))
            self._commit(job.number, job.blob, portion)
            self._bear_witness(Seen(job.number, job.chain))
        except sqlite3.Error as error:
            if is_busy(error) and not patience:
                raise
            return StoreFull(self.address, "the disk is full") if is_full(error) else self._broken(error)
        except Exception as error:  # noqa: BLE001  a thread that ends in silence would stop the server's answers
            return self._broken(error)
        return None

    # In the thread

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            trouble = self._write(job, PATIENCE)
            self._tell(job, trouble)
            if trouble is None:
                try:
                    self._checkpoint()
                except Exception as error:  # noqa: BLE001  the next batch is told
                    self._broken(error)
            self._finished += 1

    def _tell(self, job: Job, trouble: Exception | None) -> None:
        if not job.loop.is_closed():
            job.loop.call_soon_threadsafe(self._settle, job, trouble)

    def _commit(self, number: int, blob: bytes, size: int) -> None:
        folding = self._folding
        try:
            if folding is None:
                self._disk.append(number, blob)
            elif self._disk.append_and_fold(number, blob, folding, size):
                self._folding = None
        except sqlite3.Error as error:
            if not is_full(error):
                raise
            # With the reserve there is room once more, for those who let go.
            self._disk.roll_back()
            self._ballast.give()
            self._disk.append(number, blob)

    def _bear_witness(self, seen: Seen) -> None:
        if not self._witness.write(seen):
            self._ballast.give()
            self._witness.write(seen)

    def _checkpoint(self) -> None:
        if self._disk.wal_pages < WAL_PAGES:
            return
        try:
            copied = self._disk.checkpoint()
            if not copied and not self._held_up:
                log.warning("somebody reads the store: its write-ahead log grows until that ends")
            self._held_up = not copied
        except sqlite3.Error as error:
            if not is_full(error):
                raise
            self._ballast.give()

    def _broken(self, error: Exception) -> StoreBroken:
        # What was synced after a sync that failed proves nothing: there is no way on but to start again.
        self._trouble = StoreBroken(self.address, f"writing failed ({error})")
        return self._trouble

    # The rest

    def has_room(self) -> bool:
        """Whether new claims may be written."""
        if not self._ballast.short_of_room:
            return True  # as nearly always, without a further call
        try:
            return self._ballast.has_room()
        except OSError as error:
            raise self._broken(error) from error

    def figures(self) -> Figures:
        """Sizes and counts."""
        return Figures(
            batches=self._batches,
            changes=self._changes,
            bytes_written=self._bytes,
            commit_seconds=self._seconds,
            file_bytes=self._disk.sizes(),
            log_bytes=self._log_bytes,
            short_of_room=self._ballast.short_of_room,
        )

    def close(self) -> None:
        """Let go of the file."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None
        self._disk.close()
        self._witness.close()


def is_full_at_the_start(error: sqlite3.Error) -> bool:
    """The same before anything was written. Later a file beside it that cannot grow leaves the outcome open."""
    return is_full(error) or getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_SHMSIZE


def is_full(error: sqlite3.Error) -> bool:
    """Whether the disk had no room. SQLite has written nothing then that counts."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL


def is_busy(error: sqlite3.Error) -> bool:
    """Whether somebody else is writing to the file, or copies it."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
