"""Finding out whether a proxy stands in between, and whether it keeps a client on one server connection."""

from __future__ import annotations

from contextlib import suppress

from holdfast.engines.postgres.address import PostgresAddress
from holdfast.engines.postgres.wire import SocketWaiter, SqlError, Wire, WireLost, dial
from holdfast.errors import EngineFailure
from holdfast.runtime import clock

PID = "SELECT pg_catalog.to_json(pg_catalog.pg_backend_pid())"
"""Qualified: it is asked before the search path is set, and a function of another role must not take its place."""

EXPLANATION = (
    "a proxy gives each transaction another server connection (pgbouncer's pool_mode transaction or statement), and "
    "then neither LISTEN nor a session's locks are the client's own: connect to PostgreSQL directly, or through a pool "
    "with pool_mode=session"
)


AGAIN_PATIENCE = 1.0
"""How long a repeated check waits for a second connection, in seconds. A pool may be full by then."""


async def shares_servers(
    address: PostgresAddress, wire: Wire, sockets: SocketWaiter, until: float, again: bool = False
) -> bool:
    """Whether another client's transaction can take this client's server connection away.

    It asks the same question twice (a proxy that goes round its servers gives itself away), then
    lets a second client begin a transaction: a proxy that hands out what was used last gives
    it our server, and has to give us another one. If the same proxy has passed before (`again`), a
    second connection that cannot be had in time proves nothing.
    """
    patience = min(until, clock.now() + AGAIN_PATIENCE) if again else until
    pids = {(await wire.send([PID], until))[0] for _ in range(2)}
    other: Wire | None = None
    try:
        other = await dial(address.conninfos[wire.place], wire.place, sockets, patience)
        taken = (await other.send(["BEGIN", PID], patience))[0]
        pids.add((await wire.send([PID], until))[0])
    except WireLost as error:
        if not wire.alive:
            raise
        if "pooling" in str(error):
            return True  # it does not even let a transaction begin
        # No second connection is to be had: what was seen so far has to do.
        return len(pids) > 1 or (error.late and not again)
    finally:
        if other is not None:
            with suppress(SqlError, WireLost):
                await other.send(["ROLLBACK"], until)
            other.close()
    return len(pids) > 1 or taken in pids


async def refuse_transaction_pooling(
    address: PostgresAddress, wire: Wire, sockets: SocketWaiter, until: float, again: bool = False
) -> None:
    """Raise if the proxy between us and the server does not keep us on one server connection."""
    if await shares_servers(address, wire, sockets, until, again):
        raise EngineFailure(address.shown, EXPLANATION, "not done")
