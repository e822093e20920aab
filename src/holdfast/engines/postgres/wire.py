"""One connection to PostgreSQL, driven by hand over libpq.

Several statements travel in one message, so that a step of the lock table costs two round
trips and not six; and every wait has a deadline. `ready` is the only thing awaited here: the
blocking runtime answers it without suspending, so one source serves threads and tasks.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict

from holdfast.runtime.calls import new_lock

READ, WRITE = 1, 2


class SocketWaiter(Protocol):
    """How a wire waits for its socket."""

    async def ready(self, descriptor: int, event: int, until: float) -> bool:
        """Wait until it can be read or written; False if `until` comes first. WireLost if it cannot be watched."""

    def opened(self, descriptor: int) -> None:
        """A new socket has this descriptor: nothing that is remembered of an earlier one counts."""

    def closing(self, descriptor: int) -> None:
        """A descriptor is about to be closed: a call that waits for it on a loop goes on, and finds it closed."""


_GOOD = frozenset({pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.EMPTY_QUERY})
_IDLE = pq.TransactionStatus.IDLE
_EVENTS: dict[int, int] = {pq.PollingStatus.READING: READ, pq.PollingStatus.WRITING: WRITE}
_read_json = json.JSONDecoder().decode


MOVED = "HFPID"
"""The state of an error of ours: a proxy has given us another server process."""
_ANOTHER, _NO_NUMBER = "is another server process", "22P02"


class SqlError(Exception):
    """The server refused a statement. Nothing of its transaction is kept."""

    def __init__(self, state: str, message: str, detail: str = "") -> None:
        self.state, self.message, self.detail = state, message, detail
        super().__init__(f"{message} ({state})")


class WireLost(Exception):
    """The connection is gone, or an answer did not come in time; nobody reads it any more."""

    def __init__(self, problem: str, *, late: bool = False) -> None:
        self.late = late
        super().__init__(problem)


class Statement(NamedTuple):
    """A statement that is prepared when a connection first needs it. Its answer is one JSON value."""

    name: str
    types: str
    sql: str


_FUNCTIONS = re.compile(
    r"(?<![\w.])(clock_timestamp|concat_ws|convert_to|count|encode|generate_series|host|json_agg|json_build_array|max|min"
    r"|pg_advisory_lock|pg_advisory_lock_shared|pg_advisory_unlock|pg_advisory_unlock_shared|pg_backend_pid|pg_notify"
    r"|pg_try_advisory_lock|pg_try_advisory_lock_shared|row_number|sha256|to_json|to_jsonb)\("
)


@lru_cache(1024)
def prepared(statement: Statement) -> str:
    """What prepares it. Its functions are PostgreSQL's own.

    A function of another schema of the search path, if its arguments fit better, would be taken instead.
    """
    types = f"({statement.types})" if statement.types else ""
    sql = _FUNCTIONS.sub(r"pg_catalog.\1(", statement.sql)
    return f"PREPARE {statement.name}{types} AS {sql}"


def literal(value: Any) -> str:
    """A value as SQL. Strings cannot break out: the wire has standard_conforming_strings and speaks UTF-8."""
    if value is None:
        return "NULL"
    if value is True:
        return "true"
    if value is False:
        return "false"
    # A subclass, such as StrEnum, counts by its value: its own `str()` and `repr()` may say something else.
    if isinstance(value, str):
        return "'" + str.__str__(value).replace("'", "''") + "'"
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return float.__repr__(value)
    if isinstance(value, bytes):
        return f"'\\x{value.hex()}'"
    if isinstance(value, tuple | list):
        return f"ARRAY[{','.join(map(literal, value))}]::text[]"
    raise TypeError(f"{type(value).__name__} has no literal")


class Wire:
    """A connection. One request at a time; broken for good after a loss."""

    def __init__(self, connection: pq.abc.PGconn, sockets: SocketWaiter, place: int) -> None:
        self.connection, self.sockets = connection, sockets
        self.descriptor = connection.socket
        """Of its socket, as long as it is alive; of none, or another one, after that."""
        self.place = place
        """Which of the hosts it leads to."""
        self.direct = False
        """Whether no pooling proxy stands in between."""
        self.server_pid = 0
        """The server process that answers."""
        self.server = ""
        """Which server it leads to: its system identifier and start time."""
        self.preamble: tuple[str, ...] = ()
        """What comes first in every message that begins a transaction."""
        self.prepared: set[str] = set()
        self.unsure = False
        """Whether a message failed that may have prepared something."""
        self.busy = False
        """Whether something was sent whose answer has not been read to its end."""
        self.alive = True
        self._closing = new_lock()

    @property
    def backend_pid(self) -> int:
        """The server process as the handshake named it; a proxy names one of its own invention."""
        return self.connection.backend_pid

    def parameter(self, name: str) -> str:
        """What the server told of itself."""
        return (self.connection.parameter_status(name.encode()) or b"").decode()

    @property
    def in_transaction(self) -> bool:
        return self.connection.transaction_status != _IDLE

    async def send(self, parts: Iterable[str], until: float, statements: Iterable[Statement] = ()) -> list[Any]:
        """Send a message and collect the JSON values that its statements give, in order.

        `statements` were called in it: they count as prepared once the message has succeeded.
        """
        await self.post(parts, until)
        try:
            values = await self.answer(until)
        except SqlError:
            self.unsure = True
            raise
        self.prepared.update(statement.name for statement in statements)
        return values

    async def post(self, parts: Iterable[str], until: float) -> None:
        """Send a message without waiting for what comes of it."""
        if not self.alive:
            raise WireLost("the connection was closed")
        try:
            self.busy = True
            before = () if self.in_transaction else self.preamble
            self.connection.send_query(";".join([*before, *parts]).encode())
            while self.connection.flush():
                await self._wait(WRITE, until)
        except psycopg.OperationalError as error:
            self.close()
            raise WireLost(str(error).strip() or "the connection was lost") from error
        except BaseException:
            self.close()
            raise

    async def post_prepared(self, name: bytes, values: list[bytes], until: float) -> None:
        """The same for one prepared statement: the server neither parses nor plans. Every value is a number."""
        if self.preamble:
            await self.post([f"EXECUTE {name.decode()}({','.join(value.decode() for value in values)})"], until)
            return
        if not self.alive:
            raise WireLost("the connection was closed")
        try:
            self.busy = True
            self.connection.send_query_prepared(name, values)
            while self.connection.flush():
                await self._wait(WRITE, until)
        except psycopg.OperationalError as error:
            self.close()
            raise WireLost(str(error).strip() or "the connection was lost") from error
        except BaseException:
            self.close()
            raise

    async def answered(self, until: float) -> bool:
        """Wait for the answer to begin; False if `until` comes first, and the wire is good all the same."""
        try:
            while self.connection.is_busy():
                if not await self.sockets.ready(self.connection.socket, READ, until):
                    return False
                self.connection.consume_input()
        except psycopg.OperationalError as error:
            self.close()
            raise WireLost(str(error).strip() or "the connection was lost") from error
        except WireLost:
            self.close()
            raise
        return True

    async def answer(self, until: float) -> list[Any]:
        """The JSON values that came of what was sent; SqlError if the server refused, WireLost if none came in time."""
        connection = self.connection
        values: list[Any] = []
        failure: SqlError | None = None
        try:
            while True:
                while connection.is_busy():
                    await self._wait(READ, until)
                    connection.consume_input()
                result = connection.get_result()
                if result is None:
                    break
                if result.status not in _GOOD:
                    failure = failure or _error(result)
                elif result.ntuples and result.nfields:
                    text = result.get_value(0, 0)
                    if text != b"":  # that is what a function says that returns nothing
                        values.append(None if text is None else _read_json(text.decode()))
        except psycopg.OperationalError as error:
            self.close()
            raise WireLost(str(error).strip() or "the connection was lost") from error
        except BaseException:
            # Nobody will read the rest of the answer: this connection cannot be used again.
            self.close()
            raise
        self.busy = False
        if failure is None:
            return values
        if failure.state == MOVED:
            self.close()
            raise failure
        if connection.status != pq.ConnStatus.OK or failure.state.startswith(("57P", "08")):
            self.close()
            raise WireLost(failure.message)
        raise failure

    def keep_to_server_process(self) -> None:
        """From now on every transaction fails with the state MOVED, unless it runs in this server process.

        A proxy that pools transactions gives all statements of one message to one server process.
        """
        pid = "pg_catalog.pg_backend_pid()"
        other = f"({pid}::pg_catalog.text OPERATOR(pg_catalog.||) ' {_ANOTHER}')::pg_catalog.int4::pg_catalog.text"
        # What gives an empty text counts as nothing. The number is not known before it runs, so it cannot fail before.
        self.preamble = (f"SELECT CASE WHEN {pid} OPERATOR(pg_catalog.=) {self.server_pid} THEN '' ELSE {other} END",)

    async def _wait(self, event: int, until: float) -> None:
        if not await self.sockets.ready(self.connection.socket, event, until):
            raise WireLost("no answer came in time", late=True)

    def notifications(self) -> list[bytes]:
        """The payloads that came for this connection unasked. WireLost if the server has gone."""
        try:
            self.connection.consume_input()
        except psycopg.OperationalError as error:
            self.close()
            raise WireLost(str(error).strip()) from error
        return self.arrived()

    def arrived(self) -> list[bytes]:
        """The same as far as it was read already."""
        found = []
        while (notice := self.connection.notifies()) is not None:
            found.append(notice.extra)
        return found

    async def cancel(self, until: float) -> None:
        """Ask the server to give up what it is doing for this wire; it may have done it by then, or never hear of it.

        A libpq before 17 can only block until the server has heard.
        """
        try:
            if pq.version() < 170000:
                self.connection.get_cancel().cancel()
                return
            asking = self.connection.cancel_conn()
            try:
                asking.start()
                self.sockets.opened(asking.socket)
                while (event := _EVENTS.get(asking.poll())) and await self.sockets.ready(asking.socket, event, until):
                    continue
                if asking.status == pq.ConnStatus.BAD:
                    raise psycopg.OperationalError(asking.get_error_message())
            finally:
                _finish(asking, self.sockets)
        except psycopg.OperationalError as error:
            self.close()
            raise WireLost(str(error).strip()) from error
        except WireLost:
            self.close()
            raise

    def close(self) -> None:
        """Close it; the server rolls back what was not committed."""
        with self._closing:
            if self.alive:
                # First: the loop would go on believing that it watches whatever has this number next.
                self.sockets.closing(self.descriptor)
                self.alive = False
                self.connection.finish()

    def hang_up(self) -> None:
        """End the conversation, from any thread: whoever uses the wire sees it break, and the server too."""
        with self._closing, suppress(OSError):
            if self.alive:
                with socket.socket(fileno=os.dup(self.descriptor)) as copy:
                    copy.shutdown(socket.SHUT_RDWR)


def _error(result: pq.abc.PGresult) -> SqlError:
    field = pq.DiagnosticField
    state = (result.error_field(field.SQLSTATE) or b"").decode()
    message = (result.error_field(field.MESSAGE_PRIMARY) or result.error_message).decode(errors="replace").strip()
    detail = (result.error_field(field.MESSAGE_DETAIL) or b"").decode(errors="replace")
    if state == _NO_NUMBER and _ANOTHER in message:
        state = MOVED
    return SqlError(state or "08000", message, detail)


def _refusal(connection: pq.abc.PGconn, conninfo: str) -> str:
    """Why a connection was refused, without the user: no message shows what a URL has before its last `@`."""
    said = connection.get_error_message().strip()
    user = conninfo_to_dict(conninfo).get("user")
    return said.replace(f'"{user}"', '"…"') if user else said


def _finish(connection: pq.abc.PGconn | pq.abc.PGcancelConn, sockets: SocketWaiter) -> None:
    """Close a connection whose socket may still be watched."""
    # libpq has closed its socket after an error.
    with suppress(psycopg.OperationalError):
        sockets.closing(connection.socket)
    connection.finish()


async def dial(conninfo: str, place: int, sockets: SocketWaiter, until: float) -> Wire:
    """Open a connection; WireLost if that fails or takes too long."""
    try:
        connection = pq.PGconn.connect_start(conninfo.encode())
    except psycopg.OperationalError as error:
        raise WireLost(str(error).strip()) from error
    descriptor = -1
    try:
        while True:
            if connection.status == pq.ConnStatus.BAD:
                raise WireLost(_refusal(connection, conninfo))
            if connection.socket != descriptor:
                descriptor = connection.socket
                sockets.opened(descriptor)
            step = connection.connect_poll()
            if step == pq.PollingStatus.OK:
                break
            if step == pq.PollingStatus.FAILED:
                raise WireLost(_refusal(connection, conninfo))
            event = READ if step == pq.PollingStatus.READING else WRITE
            if not await sockets.ready(connection.socket, event, until):
                raise WireLost("the server did not answer in time", late=True)
        connection.nonblocking = 1
        connection.notice_handler = None
        return Wire(connection, sockets, place)
    except BaseException as error:
        _finish(connection, sockets)
        if isinstance(error, psycopg.OperationalError):
            raise WireLost(str(error).strip()) from error
        raise
