"""What `doctor` finds in a PostgreSQL."""

from __future__ import annotations

import time
from typing import Any

from holdfast.engines.checkup import Finding
from holdfast.engines.postgres.address import PostgresAddress
from holdfast.engines.postgres.proxy import EXPLANATION, PID, shares_servers
from holdfast.engines.postgres.schema import MIGRATIONS, find_version
from holdfast.engines.postgres.sockets import ThreadSockets
from holdfast.engines.postgres.trouble import lost, unavailable
from holdfast.engines.postgres.wire import SqlError, Wire, WireLost, dial, literal
from holdfast.runtime import clock
from holdfast.runtime.blocking import run

PATIENCE = 10.0
SKEW = 1.0
"""More than this between the two clocks, in seconds, confuses people who compare their logs."""

# What a new session gets, whatever was set in this one.
_SETTINGS = (
    "SELECT json_object_agg(name, reset_val) FROM pg_settings WHERE name IN ('synchronous_commit', 'fsync',"
    " 'full_page_writes', 'synchronous_standby_names', 'idle_session_timeout', 'tcp_keepalives_idle',"
    " 'client_connection_check_interval', 'max_connections', 'deadlock_timeout', 'autovacuum',"
    " 'idle_in_transaction_session_timeout', 'transaction_timeout')"
)
_REPLICAS = (
    "SELECT json_build_array(pg_is_in_recovery(), (SELECT count(*) FROM pg_stat_replication),"
    " (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')))"
)


def check_up(address: PostgresAddress, *, leased: bool = True) -> list[Finding]:
    """Read the real configuration; EngineUnavailable if the server cannot be reached."""
    try:
        return run(_check_up(address, leased, clock.now() + PATIENCE))
    except WireLost as error:
        raise lost(address.shown, error, committing=False) from error
    except SqlError as error:
        raise unavailable(address.shown, error) from error


async def _check_up(address: PostgresAddress, leased: bool, until: float) -> list[Finding]:
    sockets = ThreadSockets()
    wire = await dial(address.conninfos[0], 0, sockets, until)
    # Only within each message: through a proxy that pools transactions it would be set for other clients.
    wire.preamble = ("SET LOCAL search_path = pg_catalog, pg_temp",)
    try:
        (settings,) = await wire.send([_SETTINGS], until)
        (replicas,) = await wire.send([_REPLICAS], until)
        findings = [
            _version(wire),
            await _proxy(address, wire, sockets, until),
            _durability(settings),
            _replication(settings, *replicas),
            _idle_sessions(settings),
            _dead_peers(settings),
            await _skew(wire, until),
        ]
        if leased:
            findings.append(await _rights(address, wire, until))
            findings.append(_vacuum(settings))
        return findings
    finally:
        wire.close()


def _version(wire: Wire) -> Finding:
    version = wire.parameter("server_version")
    number = wire.connection.server_version
    if number < 120000:
        return Finding("version", "danger", version, "it is too old for this engine", "PostgreSQL 12 or later")
    if number < 140000:
        return Finding("version", "warning", version, "a dead client is noticed late", "PostgreSQL 14 or later")
    return Finding("version", "good", version)


async def _proxy(address: PostgresAddress, wire: Wire, sockets: ThreadSockets, until: float) -> Finding:
    (pid,) = await wire.send([PID], until)
    if pid == wire.backend_pid:
        return Finding("pooling proxy", "good", "none: the connection leads to the server itself")
    if await shares_servers(address, wire, sockets, until):
        return Finding("pooling proxy", "danger", "one that pools transactions", EXPLANATION, "pool_mode=session")
    return Finding("pooling proxy", "good", "one that keeps each client on its own server connection")


def _durability(settings: dict[str, Any]) -> Finding:
    found = ", ".join(f"{key}={settings[key]}" for key in ("synchronous_commit", "fsync", "full_page_writes"))
    if settings["fsync"] == "off" or settings["full_page_writes"] == "off":
        return Finding("durability", "danger", found, "a crash can lose grants and repeat tokens", "fsync = on")
    if settings["synchronous_commit"] in ("off", "local"):
        return Finding(
            "durability", "good", found, "this engine sets synchronous_commit = on for its own connections"
        )  # fmt: skip
    return Finding("durability", "good", found)


def _replication(settings: dict[str, Any], standby: bool, replicas: int, synchronous: int) -> Finding:
    names = settings["synchronous_standby_names"]
    if standby:
        return Finding(
            "replication", "danger", "this server is a standby: it takes no writes", "nothing can be granted here",
            "give all hosts and target_session_attrs=read-write",
        )  # fmt: skip
    if not replicas and not names:
        return Finding(
            "replication", "good", "no replica", "while this server is down nothing is granted, and nothing is lost"
        )
    if not names:
        return Finding(
            "replication", "danger", f"{replicas} asynchronous",
            "a failover can lose grants: two holders at once, and tokens that come again",
            "synchronous_standby_names",
        )  # fmt: skip
    found = f"{synchronous} synchronous of {replicas}; synchronous_standby_names = {names}"
    if not synchronous:
        return Finding("replication", "warning", found, "no commit ends until a synchronous replica is there")
    return Finding("replication", "good", found, "a failover to a synchronous replica loses no grant")


def _idle_sessions(settings: dict[str, Any]) -> Finding:
    limit = settings.get("idle_session_timeout", "0")
    if limit not in ("0", None):
        return Finding(
            "idle_session_timeout", "good", f"{limit} ms", "this engine switches it off for its own connections"
        )
    return Finding("idle_session_timeout", "good", "off")


def _dead_peers(settings: dict[str, Any]) -> Finding:
    idle, interval = settings["tcp_keepalives_idle"], settings.get("client_connection_check_interval")
    found = f"tcp_keepalives_idle={idle}, client_connection_check_interval={interval}"
    if idle == "0" or int(idle) > 600:
        return Finding(
            "dead peers", "warning", found,
            "the connection of a machine that lost power is kept for hours; with ?recipe=advisory so are its locks",
            "tcp_keepalives_idle = 30, tcp_keepalives_interval = 10, tcp_keepalives_count = 3",
        )  # fmt: skip
    return Finding("dead peers", "good", found)


async def _skew(wire: Wire, until: float) -> Finding:
    before = time.time()
    (theirs,) = await wire.send(["SELECT to_json(extract(epoch FROM clock_timestamp()))"], until)
    skew = theirs - (before + time.time()) / 2
    found = f"the server's clock is {abs(skew):.3f} s {'ahead of' if skew > 0 else 'behind'} this machine's"
    if abs(skew) > SKEW:
        return Finding(
            "clock skew", "warning", found, "expiry goes by the server's clock alone, but times in messages will differ"
        )
    return Finding("clock skew", "good", found)


async def _rights(address: PostgresAddress, wire: Wire, until: float) -> Finding:
    schema = literal(address.schema)
    try:
        version = await find_version(wire, address.schema, until)
    except SqlError as error:
        return _no_rights(address, str(error))
    if not version:
        (may,) = await wire.send(["SELECT to_json(has_database_privilege(current_database(), 'CREATE'))"], until)
        if not may:
            return _no_rights(address, f"schema {address.schema!r} is not there, and this role may not make it")
        return Finding("rights", "good", f"schema {address.schema!r} is made on first use")
    sql = (
        "SELECT coalesce(json_agg(c.relname), '[]') FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        f" WHERE n.nspname = {schema} AND c.relkind = 'r' AND c.relname <> 'meta'"
        " AND NOT has_table_privilege(c.oid, 'SELECT, INSERT, UPDATE, DELETE')"
    )
    (missing,) = await wire.send([sql], until)
    if missing:
        return _no_rights(address, f"no right to write {', '.join(missing)}")
    return Finding("rights", "good", f"schema {address.schema!r}, version {version} of {len(MIGRATIONS)}")


def _no_rights(address: PostgresAddress, found: str) -> Finding:
    mend = f"holdfast postgres ddl --schema {address.schema} --role ROLE | psql …"
    return Finding("rights", "danger", found, "the lock table cannot be used", mend)


def _vacuum(settings: dict[str, Any]) -> Finding:
    if settings["autovacuum"] != "on":
        return Finding("autovacuum", "danger", "off", "a grant leaves two dead rows, and nobody clears them", "on")
    return Finding("autovacuum", "good", "on")
