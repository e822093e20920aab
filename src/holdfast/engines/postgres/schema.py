"""The schema of the lock table: made on first use, versioned, migrated, and shown to administrators."""

from __future__ import annotations

from importlib.resources import files
from zlib import crc32

from holdfast.engines.postgres.wire import SqlError, Wire, literal
from holdfast.errors import EngineFailure

MIGRATIONS = ("schema_1.sql",)
"""Each brings the schema one version further; the first makes it from nothing."""

BUCKET_LOCKS = 256
SWEEP_LOCK, SCHEMA_LOCK, LETTERS_LOCK, WAIT_LOCK = 256, 257, 258, 259
"""Advisory locks of a schema beside those of its buckets, which are 0 to 255."""

GRANTS = """\
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role};
REVOKE INSERT, UPDATE, DELETE ON {schema}.meta FROM {role};
"""


def quoted(name: str) -> str:
    """An identifier, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def lock_class(schema: str) -> int:
    """The first half of the advisory lock keys of a schema: two schemas in one database do not meet."""
    return crc32(f"holdfast:{schema}".encode()) - 2**31


def read(name: str) -> str:
    """A migration's text."""
    return files("holdfast.engines.postgres").joinpath(name).read_text()


def ddl(schema: str, role: str | None = None) -> str:
    """What an administrator runs so that a role without the right to create tables can use the engine."""
    parts = [f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)};", f"SET search_path = {quoted(schema)};"]
    parts += [read(name).strip() for name in MIGRATIONS]
    if role is not None:
        parts.append(GRANTS.format(schema=quoted(schema), role=quoted(role)).strip())
    return "\n".join(["BEGIN;", *parts, "COMMIT;", ""])


async def find_version(wire: Wire, schema: str, until: float) -> int:
    """The version that is there; 0 if there is none."""
    # From the catalogue's tables, by a snapshot: a name lookup may still say no after we waited for whoever made it.
    found = await wire.send(
        [
            "SELECT pg_catalog.to_json(c.relname) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n"
            f" ON n.oid = c.relnamespace WHERE n.nspname = {literal(schema)} AND c.relname = 'meta'"
        ],
        until,
    )
    if not found:
        return 0
    sql = f"SELECT pg_catalog.to_json(value) FROM {quoted(schema)}.meta WHERE key = 'version'"
    value = await wire.send([sql], until)
    return int(value[0]) if value else 0


async def ensure(wire: Wire, schema: str, address: str, until: float) -> None:
    """Make the schema, or bring it to this version. EngineUnavailable says who has to do what otherwise."""
    try:
        version = await find_version(wire, schema, until)
        if version < len(MIGRATIONS):
            await _migrate(wire, schema, until)
            version = await find_version(wire, schema, until)
    except SqlError as error:
        if error.state != "42501":
            raise
        command = f"holdfast postgres ddl --schema {schema} --role ROLE | psql …"
        problem = f"its role may not make or use the schema {schema!r}; an administrator runs: {command} ({error})"
        raise EngineFailure(address, problem, "not done") from error
    if version > len(MIGRATIONS):
        problem = f"schema {schema!r} has version {version}, this Holdfast knows {len(MIGRATIONS)}: upgrade Holdfast"
        raise EngineFailure(address, problem, "not done")


async def _migrate(wire: Wire, schema: str, until: float) -> None:
    """All missing versions in one transaction. Clients that come at the same moment wait for the first."""
    lock = f"SELECT FROM pg_catalog.pg_advisory_xact_lock({lock_class(schema)}, {SCHEMA_LOCK})"
    try:
        await wire.send(["BEGIN", lock], until)
        version = await find_version(wire, schema, until)
        if not version:
            sql = f"SELECT pg_catalog.to_json(nspname) FROM pg_catalog.pg_namespace WHERE nspname = {literal(schema)}"
            if not await wire.send([sql], until):
                # Not IF NOT EXISTS: that needs the right to create one even where it is there.
                await wire.send([f"CREATE SCHEMA {quoted(schema)}"], until)
        for name in MIGRATIONS[version:]:
            await wire.send([f"SET LOCAL search_path = {quoted(schema)}", read(name)], until)
        await wire.send(["COMMIT"], until)
    except SqlError:
        await wire.send(["ROLLBACK"], until)
        raise
