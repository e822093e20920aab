"""`sqlite:///path`: the lock table in a file, for all processes of one machine. The default engine.

One short transaction a step; processes wake each other through named pipes beside the file.
"""

from __future__ import annotations

import logging
import os
import random
import sqlite3
import time
import weakref
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.table import Outcome, apply
from holdfast.core.table.commands import (
    GONE,
    CellSet,
    Close,
    Command,
    Done,
    Notice,
    Open,
    RaiseTokens,
    Renew,
    Renewed,
    SessionOver,
)
from holdfast.core.table.machine import READS
from holdfast.core.table.step import WHOLE_LINES
from holdfast.core.urls import Url
from holdfast.engines.checkup import Finding
from holdfast.engines.engine import LONGEST_CALL, Deliver, nobody
from holdfast.engines.memory import GUARANTEES as MEMORY
from holdfast.engines.sqlite.bell import Bell, ring
from holdfast.engines.sqlite.checkup import check_up
from holdfast.engines.sqlite.file import FileIdentity, SqliteFile, raise_bound, unavailable
from holdfast.engines.sqlite.rows import BoundReached, SqliteRows
from holdfast.engines.table_verbs import TableVerbs
from holdfast.errors import EngineFailure, InvalidRequest
from holdfast.model import Guarantees
from holdfast.runtime import clock, fork
from holdfast.runtime.blocking import BlockingIo, run
from holdfast.runtime.call_pool import CallPool, PoolItem
from holdfast.runtime.calls import UNDER_WAY
from holdfast.runtime.turns import Turns

if TYPE_CHECKING:
    import asyncio

log = logging.getLogger("holdfast")

REPLACED = "the database file was deleted or replaced while it was in use"

DURABLE = frozenset({CellSet, RaiseTokens})
"""Commands whose effect has to survive a power cut, not only a crash."""

FORK_WAITS = 5.0
"""How long a fork waits at most for other threads to finish their steps."""

LONGEST_PAUSE = 0.005
"""Between two tries to take the file's write lock."""

TO_OTHERS = 0.0001
"""How long a thread leaves the connection to others that wait for it."""

ON_THE_LOOP = 0.002
"""How long a step may wait for the file before it leaves the event loop for a thread."""

GUARANTEES = Guarantees(
    consensus=False,
    durable=True,
    leased=True,
    fair=True,
    notified=True,
    deadlock_detection=True,
    fencing="strict",
    clock="monotonic",
    modes=MEMORY.modes,
    events=MEMORY.events,
    lost_node="When the machine goes down everything is released; after a reboot tokens go on growing.",
    summary="Excludes processes of one machine, on its file system's locks; a process stopped inside a "
    "transaction stops the others until it goes on or is killed.",
)


class Busy(Exception):
    """The file was not to be had within the time given."""


@dataclass
class Connected:
    """A connection and what belongs to it."""

    connection: sqlite3.Connection
    file: FileIdentity
    """What the connection is to."""
    rows: SqliteRows


class SqlitePort:
    """Runs commands, each in a transaction of its own, on one connection that calls borrow in turn."""

    def __init__(self, engine: SqliteEngine) -> None:
        self.engine = engine
        self.closed = False
        self._begin_anew()

    def _begin_anew(self) -> None:
        # Closing a connection rolls back what an interrupted call has begun on it.
        self.pool: CallPool[Connected] = CallPool(1, lambda left: left.connection.close())
        self._opening: list[sqlite3.Connection] = []
        """What is being opened: an interrupt may come before the item carries it."""
        self._kept: PoolItem[Connected] | None = None
        """Kept from other threads while the process forks."""

    def call(self, request: Command, until: float) -> Any:
        """Run a command; EngineUnavailable if the file is not to be had in time."""
        try:
            return self.call_within(request, until, max(0.0, until - clock.now()))
        except Busy:
            raise self.engine.locked() from None

    def call_within(self, request: Command, until: float, patience: float) -> Any:
        """Run a command; Busy if this connection or the file is not to be had in time. Nothing was done then."""
        if any(item.is_lent_here for item in self.pool.items):
            # Only a signal handler gets here, in the middle of a step of the same thread.
            raise EngineFailure(self.engine.address, UNDER_WAY, "not done")
        item = self.pool.take(clock.now() + patience)
        if item is None:
            raise Busy
        try:
            connected = self._connected(item)
            for session in self.engine.sessions_elsewhere(connected.file):
                self._end_session(item, session, until)
            if isinstance(request, Open):
                self.engine.begin_listening(request.session.id, connected.file)
            outcome = self._transact(item, request, until)
            dropped, connected.rows.dropped_sessions = connected.rows.dropped_sessions, []
        finally:
            self.pool.give(item)
        self.engine.spread(outcome.notices, dropped)
        if patience and self.pool.is_waited_for():
            # Without a pause the thread that was woken finds the connection borrowed again, time after time.
            time.sleep(TO_OTHERS)
        if isinstance(request, Close) and isinstance(outcome.reply, Done) and not outcome.reply.more:
            self.engine.end_listening(request.session)
        if isinstance(outcome.reply, SessionOver):
            asked = getattr(getattr(request, "claim", request), "session", "")
            return SessionOver(self.engine.ended.get(asked, ""))
        return outcome.reply

    def _connected(self, item: PoolItem[Connected]) -> Connected:
        """The connection of a borrowed item, to the file that is there now, without anything begun on it."""
        roll_back(item)
        if item.value is not None and self.engine.file.identity() != item.value.file:
            self.engine.file.check_again()
            disconnect(item)
        if self.closed:
            # A thread that asked while the client was closed would open a connection that nothing closes.
            raise EngineFailure(self.engine.address, "the client was closed", "not done")
        self._close_opening(item)
        if item.value is None:
            connection, file = self.engine.file.connect(self._open)
            item.value = Connected(connection, file, SqliteRows(connection))
            self._opening.clear()
        return item.value

    def _open(self, *args: Any, **settings: Any) -> sqlite3.Connection:
        """Open a connection that is known here before it is open."""
        connection = sqlite3.Connection.__new__(sqlite3.Connection)
        self._opening.append(connection)
        sqlite3.Connection.__init__(connection, *args, **settings)
        return connection

    def _close_opening(self, item: PoolItem[Connected]) -> None:
        """Close what interrupted calls have opened, except what the item carries."""
        while self._opening:
            if item.value is None or item.value.connection is not self._opening[-1]:
                with suppress(sqlite3.ProgrammingError):  # the interrupt came before it was opened
                    self._opening[-1].close()
            self._opening.pop()

    def _end_session(self, item: PoolItem[Connected], session: str, until: float) -> None:
        """End a session of another file in this one, which may be a copy that was made while it was open."""
        while True:
            closed = self._transact(item, Close(session), until).reply
            if not (isinstance(closed, Done) and closed.more):
                break
        self.engine.end_elsewhere(session)

    def _transact(self, item: PoolItem[Connected], command: Command, until: float) -> Outcome:
        assert item.value is not None
        connection, rows = item.value.connection, item.value.rows
        durable = type(command) in DURABLE
        committing = False
        try:
            if durable:
                connection.execute("PRAGMA synchronous = FULL")
            while True:
                self._begin(connection, command, until)
                rows.begun()
                try:
                    outcome = apply(command, clock.now(), rows.answer, rows.put, wall=time.time(), meter=WHOLE_LINES)
                except BoundReached as reached:
                    connection.execute("ROLLBACK")
                    raise_bound(connection, reached.needed, max(0.05, until - clock.now()))
                    continue
                if isinstance(command, Renew) and isinstance(outcome.reply, Renewed):
                    # The file may have been put back to an earlier copy: the client compares this with what it has.
                    outcome.reply.claims = rows.count_claims(command.session)
                committing = True
                connection.execute("COMMIT")
                rows.committed()
                return outcome
        except sqlite3.Error as error:
            roll_back(item)
            raise unavailable(self.engine.address, error, committing) from error
        except BaseException:
            if committing and not connection.in_transaction:
                # An interrupt that came during the commit is raised after it. Those whom it touched are told.
                self.engine.spread(outcome.notices, ())
            roll_back(item)
            raise
        finally:
            if durable and item.value is not None and not connection.in_transaction:
                connection.execute("PRAGMA synchronous = NORMAL")

    def _begin(self, connection: sqlite3.Connection, command: Command, until: float) -> None:
        """Take the file's write lock. SQLite's own waiting sleeps for milliseconds; a step takes a tenth of one."""
        if type(command) in READS:
            connection.execute("BEGIN")
            return
        pause = 0.00005
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    raise
                if clock.now() >= until:
                    raise Busy from error
            if pause == LONGEST_PAUSE:
                self.engine.roll_back_left(self)
            time.sleep(random.uniform(0, pause))
            pause = min(pause * 2, LONGEST_PAUSE)

    def roll_back_left(self) -> None:
        """Undo what an interrupted call has begun and could not undo: it keeps all others from the file."""
        item = self.pool.take(clock.now())
        if item is not None:
            roll_back(item)
            self.pool.give(item)

    def close(self) -> None:
        self.closed = True
        item = self.pool.take(clock.now() + LONGEST_CALL)
        if item is not None:
            disconnect(item)
            self._close_opening(item)
            self.pool.give(item)

    def before_fork(self) -> None:
        """Leave nothing of SQLite's for the child: it would take its parent's file locks for its own."""
        self._kept = self.pool.take(clock.now() + FORK_WAITS)
        if self._kept is not None:
            disconnect(self._kept)
            self._close_opening(self._kept)

    def after_fork(self) -> None:
        """Let other threads go on."""
        kept, self._kept = self._kept, None
        if kept is not None:
            self.pool.give(kept)

    def in_child(self) -> None:
        """Begin anew. A connection that was in use at the fork is kept, so that nothing closes it here."""
        _abandoned.extend((self.pool, self._opening))
        self._begin_anew()


def disconnect(item: PoolItem[Connected]) -> None:
    """Close the connection of a borrowed item."""
    connected, item.value = item.value, None
    if connected is not None:
        connected.connection.close()


def roll_back(item: PoolItem[Connected]) -> None:
    """Undo what was begun on a connection. One that cannot even do that is not used again."""
    try:
        if item.value is not None and item.value.connection.in_transaction:
            item.value.connection.execute("ROLLBACK")
    except sqlite3.Error:
        disconnect(item)


class SqliteAsyncioPort:
    """The same for tasks: short steps run on the loop, one that has to wait for the file moves to a thread."""

    def __init__(self, port: SqlitePort, loop: asyncio.AbstractEventLoop) -> None:
        from holdfast.runtime.task_turns import TaskTurns  # not read by a program that blocks

        self.port, self.loop, self.turns = port, loop, Turns()
        self._order = TaskTurns(loop)
        """One step at a time. Steps behind one that moved to the thread do not follow it: to change threads takes
        longer than most steps, and all would be slow for as long as others come."""

    async def call(self, request: Command, until: float) -> Any:
        await self.turns.give()
        if not await self._order.take(until):
            raise self.port.engine.locked()
        try:
            # As a call of its own: one that a signal handler's exception ends is seen to have ended.
            return run(self._on_the_loop(request))
        except Busy:
            return await self.loop.run_in_executor(self.port.engine.threads(), self.port.call, request, until)
        finally:
            self._order.give()

    async def _on_the_loop(self, request: Command) -> Any:
        return self.port.call_within(request, clock.now() + ON_THE_LOOP, 0.0)


class SqliteEngine:
    """The lock table in a file."""

    schemes = ("sqlite",)
    options = frozenset({"adopt"})
    guarantees = GUARANTEES
    shortest_ttl = 0.1
    checks_every_beat = True

    def __init__(self, url: Url, namespace: str) -> None:
        if url.hosts or url.user:
            raise InvalidRequest("url", str(url), "SQLite has no host: sqlite:///relative.db or sqlite:////absolute.db")
        if not url.path:
            raise InvalidRequest(
                "url", str(url), "SQLite needs a file: sqlite:///relative.db or sqlite:////absolute.db"
            )
        self.address = str(url)
        self.deliver: Deliver = nobody
        self.file = SqliteFile(Path(url.path).absolute(), self.address, url.flag("adopt"))
        # A file that cannot be used is reported when the client connects, not at its first lock.
        self.file.connect()[0].close()
        self._start()

        self.ports: list[SqlitePort] = []
        _engines.add(self)

    def _start(self) -> None:
        self.bell: Bell | None = None
        self.sessions: dict[str, FileIdentity] = {}
        """Each session that is open, and the file in which it was opened."""
        self.ended: dict[str, str] = {}
        """Why the last session ended, if not by its time."""
        self._threads: ThreadPoolExecutor | None = None

    def port(self) -> SqlitePort:
        port = SqlitePort(self)
        self.ports.append(port)
        return port

    def blocking(self) -> TableVerbs:
        if self.bell is None:
            self.bell = Bell(self.file.wake_folder, lambda notice: self.deliver(notice))
        return TableVerbs(BlockingIo(self.port()), self.bell)

    def asyncio(self, loop: asyncio.AbstractEventLoop) -> TableVerbs:
        from holdfast.runtime.asyncio import AsyncioIo  # not read by a program that blocks

        io = AsyncioIo(SqliteAsyncioPort(self.port(), loop), loop)
        return TableVerbs(io, io.signal())

    def threads(self) -> ThreadPoolExecutor:
        """Where steps go that would hold up the event loop: one thread, because the connection is one."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1, thread_name_prefix="holdfast-sqlite")
        return self._threads

    def locked(self) -> EngineFailure:
        """The file was not to be had in time."""
        error = sqlite3.OperationalError("database is locked")
        error.sqlite_errorname = "SQLITE_BUSY"
        return unavailable(self.address, error)

    def sessions_elsewhere(self, file: FileIdentity) -> list[str]:
        """Sessions that were opened in a file which the path has no longer."""
        return [session for session, opened_in in self.sessions.copy().items() if opened_in != file]

    def end_elsewhere(self, session: str) -> None:
        """This session was opened in a file which the path has no longer: let its keeper ask, and find that out."""
        log.error("%s: %s: what was held in it is lost", self.address, REPLACED)
        self.ended = {session: REPLACED}
        self.end_listening(session)
        self.deliver(Notice(session, "", GONE))

    def begin_listening(self, session: str, file: FileIdentity) -> None:
        if session not in self.sessions and self.bell is not None:
            # A client has one session at a time: earlier ones are over, or were never opened.
            for earlier in list(self.sessions):
                self.end_listening(earlier)
            try:
                self.bell.listen(session)
            except OSError as error:
                raise EngineFailure(
                    self.address,
                    f"a pipe for wake-ups cannot be made in {self.file.wake_folder.name}: {error}",
                    "not done",
                ) from error
            self.sessions[session] = file

    def end_listening(self, session: str) -> None:
        if session in self.sessions and self.bell is not None:
            self.sessions.pop(session, None)
            self.bell.forget(session)

    def spread(self, notices: Iterable[Notice], dropped: Iterable[str]) -> None:
        """After a commit: tell those whose claims it touched, in this process and in others."""
        for notice in notices:
            if notice.session in self.sessions:
                self.deliver(notice)
            else:
                ring(self.file.wake_folder, notice)
        for session in dropped:
            if session not in self.sessions:
                try:
                    os.unlink(self.file.wake_folder / session)
                except OSError:
                    continue  # gone already, or not ours to remove; an empty pipe harms nobody

    def roll_back_left(self, busy: SqlitePort) -> None:
        """Undo what interrupted calls have left on other connections than the one that is busy."""
        for port in list(self.ports):
            if port is not busy:
                port.roll_back_left()

    def check_up(self) -> list[Finding]:
        """What `doctor` finds here."""
        return check_up(self.file)

    def abandon(self) -> None:
        """SQLite connections never cross a fork; neither does the bell, which is kept, unused."""
        _abandoned.append(self.bell)
        for port in self.ports:
            port.in_child()
        self._start()

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=True)
        for port in self.ports:
            port.close()
        if self.bell is not None:
            self.bell.close()
        self.ports = []
        self._start()


_abandoned: list[object] = []
_engines: weakref.WeakSet[SqliteEngine] = weakref.WeakSet()


def _before_fork() -> None:
    for engine in list(_engines):  # another thread may connect meanwhile
        for port in engine.ports:
            port.before_fork()


def _after_fork() -> None:
    for engine in list(_engines):  # another thread may connect meanwhile
        for port in engine.ports:
            port.after_fork()


fork.around(fork.CONNECTIONS, _before_fork, _after_fork)
