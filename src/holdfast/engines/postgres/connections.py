"""The connections of one client: opened when needed, at most so many, handed from caller to caller."""

from __future__ import annotations

import os
from hashlib import sha256
from typing import ClassVar

from holdfast.engines.postgres import proxy, schema
from holdfast.engines.postgres.address import PostgresAddress
from holdfast.engines.postgres.sockets import Sockets
from holdfast.engines.postgres.statements import SECRET
from holdfast.engines.postgres.trouble import lost, unavailable
from holdfast.engines.postgres.wire import SqlError, Wire, WireLost, dial
from holdfast.engines.signed_notices import SignedNotices
from holdfast.errors import EngineFailure
from holdfast.runtime import clock
from holdfast.runtime.call_pool import PoolItem
from holdfast.runtime.calls import UNDER_WAY, new_lock, running_call
from holdfast.runtime.task import running_task

OLDEST_SERVER = 120000

SAFE_PATH = "SET search_path = pg_catalog, pg_temp"
"""No schema in which another role may create a function that is found instead of PostgreSQL's own."""

MEANING = {
    # What a role or database may set, and what would give a statement or an answer another meaning.
    "standard_conforming_strings": "on",
    "extra_float_digits": "1",
    "transform_null_equals": "off",
    "array_nulls": "on",
    "bytea_output": "hex",
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "row_security": "on",
}
TABLE_SETTINGS = MEANING | {
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
    # Every statement is prepared once and looks rows up by an index, whatever the statistics say.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
    # A step takes a millisecond. One whose process was stopped inside it must not stop the others for long.
    "idle_in_transaction_session_timeout": "5s",
    "lock_timeout": "10s",
    "statement_timeout": "15s",
}
SETTINGS_14 = {"client_connection_check_interval": "1s", "idle_session_timeout": "0"}
SETTINGS_17 = {"transaction_timeout": "0"}

# A server that was restarted has another start time: nothing that a session held there is held any more.
_SERVER = (
    "SELECT json_build_array(pg_is_in_recovery(), current_setting('synchronous_commit'),"
    " concat_ws('/', (SELECT system_identifier FROM pg_control_system()),"
    " extract(epoch FROM pg_postmaster_start_time())))"
)
STANDBY = "the server is a standby, or in recovery: it takes no locks; give all hosts, and the primary is found"


class Checked:
    """What the connections of one engine find out once, together."""

    def __init__(self) -> None:
        self.checked = False
        self.proxy_checked = False


class ConnectionsBusy(EngineFailure):
    """Other calls had all connections for as long as this one could wait."""


class Connections:
    """At most `most` wires to one server, each used by one caller at a time."""

    settings: ClassVar[dict[str, str]] = TABLE_SETTINGS

    def __init__(self, address: PostgresAddress, sockets: Sockets, most: int, schema: Checked) -> None:
        self.address, self.sockets, self.schema = address, sockets, schema
        self.pool = sockets.pool(most, self._forget)
        self.open: set[Wire] = set()
        self.notices = SignedNotices(address.shown, sha256)
        self.channel: str | None = None
        """What the wire listens to; only a keeper's does, and it has one wire."""
        self.listening: Wire | None = None
        self.missed = False
        """Whether notices may have been lost: the wire listens anew, after another one was lost."""
        self._listened = False
        self.closed = False
        self._lock = new_lock()
        self._place = 0

    async def take(self, until: float) -> Wire:
        """A wire that is ready for use. EngineUnavailable (not done) if there is none in time."""
        if any(item.is_lent_here for item in self.pool.items):
            # Only a signal handler gets here. The transaction of its own thread may have locks that it would wait for.
            raise EngineFailure(self.address.shown, UNDER_WAY, "not done")
        item = await self.pool.take(until)
        if item is None:
            raise ConnectionsBusy(self.address.shown, "all connections were busy", "not done")
        try:
            wire = item.value
            if wire is None:
                self._check_open()
                item.value = wire = await self._connect(until)
                self._check_open(wire)
            if self.channel is not None and self.listening is not wire:
                await self._listen(wire, self.channel, until)
        except BaseException:
            if item.value is not None and not item.value.alive:
                item.value = None
            self.pool.give(item)
            raise
        return wire

    def are_plenty(self) -> bool:
        """Whether less than half of them are lent."""
        return sum(item.is_lent for item in self.pool.items) < len(self.pool.items) // 2

    def keep(self, wire: Wire) -> None:
        """A wire is lent for longer than the call that took it: it comes back only by `give`."""
        item = self._item(wire)
        if item is not None:
            item.keep_for(None)

    def lend(self, wire: Wire) -> None:
        """A wire that was kept is lent to the running call or task again."""
        item = self._item(wire)
        if item is not None:
            item.keep_for(running_call() or running_task())

    def _item(self, wire: Wire) -> PoolItem[Wire] | None:
        return next((item for item in self.pool.items if item.value is wire), None)

    async def take_listening(self) -> Wire | None:
        """The wire that listens, if nothing uses it now."""
        item = await self.pool.take(0.0)
        if item is None:
            return None
        if item.value is not None and item.value is self.listening and item.value.alive:
            return item.value
        self.pool.give(item)
        return None

    def _check_open(self, fresh: Wire | None = None) -> None:
        """Whoever was connecting while everything was closed has a wire that nobody else would close."""
        if self.closed:
            if fresh is not None:
                self._forget(fresh)
            raise EngineFailure(self.address.shown, "the client was closed", "not done")

    def give(self, wire: Wire) -> None:
        """Give a wire back; one that is broken is forgotten, and so is one that was taken back meanwhile."""
        item = self._item(wire)
        if item is None or not wire.alive or wire not in self.open:
            self._forget(wire)
        if item is not None:
            if not wire.alive:
                item.value = None
            self.pool.give(item)

    def drop_idle(self) -> None:
        """The server went away: wires that wait here for use are as dead as the one that found out."""
        for wire in self.pool.idle_values():
            self._forget(wire)

    async def _listen(self, wire: Wire, channel: str, until: float) -> None:
        try:
            (secret,) = await wire.send([f'UNLISTEN *;LISTEN "{channel}"', SECRET], until)
        except (SqlError, WireLost) as error:
            self._forget(wire)
            raise lost(self.address.shown, error, committing=False) from error
        self.notices.secret = secret.encode()
        self.missed = self._listened
        self._listened = True
        self.listening = wire

    async def _connect(self, until: float) -> Wire:
        """Try each host, the one that answered last first, each for its share of the time."""
        problems = []
        places = self._places()
        for tried, place in enumerate(places):
            now = clock.now()
            share = now + (until - now) / (len(places) - tried)
            try:
                wire = await dial(self.address.conninfos[place], place, self.sockets, share)
            except WireLost as error:
                problems.append(str(error))
                continue
            self.open.add(wire)
            try:
                await self._set_up(wire, until)
            except WireLost as error:
                self._forget(wire)
                problems.append(str(error))
                continue
            except SqlError as error:
                self._forget(wire)
                raise unavailable(self.address.shown, error) from error
            except BaseException:
                self._forget(wire)
                raise
            self._place = place
            return wire
        raise EngineFailure(self.address.shown, "; ".join(dict.fromkeys(problems)), "not done")

    def _places(self) -> list[int]:
        """Which hosts to try, in this order."""
        hosts = len(self.address.conninfos)
        return [(self._place + tried) % hosts for tried in range(hosts)]

    async def _set_up(self, wire: Wire, until: float) -> None:
        if wire.connection.server_version < OLDEST_SERVER:
            version = wire.parameter("server_version")
            raise EngineFailure(self.address.shown, f"PostgreSQL {version} is too old; 12 is needed", "not done")
        if wire.parameter("server_encoding") != "UTF8":
            encoding = wire.parameter("server_encoding")
            raise EngineFailure(self.address.shown, f"the database's encoding is {encoding}, not UTF8", "not done")
        # Nothing is set before this is known: a proxy could give the server process to another client afterwards.
        (wire.server_pid,) = await wire.send([proxy.PID], until)
        wire.direct = wire.server_pid == wire.backend_pid
        if not wire.direct:
            again = self.schema.proxy_checked
            await proxy.refuse_transaction_pooling(self.address, wire, self.sockets, until, again)
            self.schema.proxy_checked = True
            # It can be told to pool transactions while it runs: then it is another one, and that is refused.
            wire.keep_to_server_process()
        number = wire.connection.server_version
        settings = self.settings | (SETTINGS_14 if number >= 140000 else {})
        settings |= SETTINGS_17 if number >= 170000 else {}
        parts = [SAFE_PATH, *(f"SET {key} = '{value}'" for key, value in settings.items()), _SERVER]
        ((standby, commits, wire.server),) = await wire.send(parts, until)
        if standby:
            raise WireLost(STANDBY)
        await self._prepare(wire, commits, until)

    async def _prepare(self, wire: Wire, commits: str, until: float) -> None:
        """What the lock table needs."""
        # PostgreSQL looks into pg_catalog first, and into temporary tables last.
        await wire.send([f"SET search_path = {schema.quoted(self.address.schema)}, pg_temp"], until)
        if commits in ("off", "local"):
            # A token that was given out must not be forgotten, by no server that may take over.
            await wire.send(["SET synchronous_commit = on"], until)
        if not self.schema.checked:
            await schema.ensure(wire, self.address.schema, self.address.shown, until)
            self.schema.checked = True

    def _forget(self, wire: Wire) -> None:
        self.open.discard(wire)
        if self.listening is wire:
            self.listening = None
        wire.close()

    def close(self) -> None:
        """Close every wire, also those in use: whoever uses one sees it break."""
        self.closed = True
        with self._lock:
            wires, self.open, self.listening = list(self.open), set(), None
        for wire in wires:
            if wire.alive:
                # A poll does not see that another thread has closed what it looks at; but this it sees.
                wire.hang_up()
                wire.close()

    def abandon(self) -> None:
        """This process is a fork: close our copies of the sockets without a word, and let nothing close them again."""
        for wire in self.open:
            if wire.alive:
                os.close(wire.descriptor)
                _abandoned.append(wire)
        self.open = set()


_abandoned: list[Wire] = []
