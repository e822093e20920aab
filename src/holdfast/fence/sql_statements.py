"""The SQL of the fence, one set of statements a dialect. Pure text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from holdfast.errors import InvalidRequest
from holdfast.fence.token import TOKENS_END

Dialect = Literal["postgresql", "sqlite", "mysql"]
DIALECTS: tuple[Dialect, ...] = ("postgresql", "sqlite", "mysql")
DEFAULT_TABLE = "holdfast_fence"

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}(?:\.[A-Za-z_][A-Za-z0-9_]{0,62})?", re.ASCII)


@dataclass(frozen=True)
class Statements:
    """What one dialect says. Parameters are `:resource` and `:token`.

    On PostgreSQL and SQLite a check gives one row with the highest token, or none if it refuses.
    MySQL has no RETURNING: the answer comes as the statement's insert id, 2^53 added if it refuses.
    """

    create: str
    exclusive: str
    once: str
    shared: str
    highest: str

    def named(self, once: bool, shared: bool) -> str:
        """The check for a kind of token."""
        return self.shared if shared else self.once if once else self.exclusive


def check_identifier(table: str, argument: str = "table") -> str:
    """Return `table` if it is a plain name, or schema.name: it goes into SQL as it is."""
    if not isinstance(table, str) or not _IDENTIFIER.fullmatch(table):
        raise InvalidRequest(argument, table, "a table is named by letters, digits and _, optionally after a schema")
    return table


def quoted(dialect: Dialect, table: str) -> str:
    """The table's name, quoted, so that a reserved word can be one."""
    mark = "`" if dialect == "mysql" else '"'
    return ".".join(f"{mark}{part}{mark}" for part in check_identifier(table).split("."))


@lru_cache(maxsize=64)
def statements(dialect: Dialect, table: str) -> Statements:
    """The fence's statements for a dialect and a table."""
    return _mysql(quoted(dialect, table)) if dialect == "mysql" else _upserting(dialect, quoted(dialect, table))


def _upserting(dialect: Dialect, table: str) -> Statements:
    """PostgreSQL and SQLite: the row is locked, compared and raised in one step."""

    def upsert(first: str, rule: str) -> str:
        return (
            f"INSERT INTO {table} AS fence (resource, token) VALUES (:resource, {first}) "
            f"ON CONFLICT (resource) DO UPDATE SET token = {rule} RETURNING token"
        )

    return Statements(
        create=_CREATE[dialect].format(table=table, key=table.strip('"').replace('"', "")),
        exclusive=upsert(":token", "excluded.token WHERE fence.token <= excluded.token"),
        once=upsert(":token", "excluded.token WHERE fence.token < excluded.token"),
        shared=_SHARED_POSTGRESQL.format(table=table)
        if dialect == "postgresql"
        else upsert("0", "fence.token WHERE fence.token <= :token"),
        highest=f"SELECT token FROM {table} WHERE resource = :resource",
    )


def _mysql(table: str) -> Statements:
    def upsert(first: str, rule: str, kept: str) -> str:
        return (
            f"INSERT INTO {table} (resource, token) VALUES (:resource, {first}) ON DUPLICATE KEY UPDATE "
            f"token = IF({rule}, {kept}, LAST_INSERT_ID(token + {TOKENS_END}) - {TOKENS_END})"
        )

    passed = "LAST_INSERT_ID(:token)"
    return Statements(
        create=_CREATE["mysql"].format(table=table),
        exclusive=upsert(passed, "token <= :token", passed),
        once=upsert(passed, "token < :token", passed),
        shared=upsert(f"0 * {passed}", "token <= :token", f"token + 0 * {passed}"),
        highest=f"SELECT token FROM {table} WHERE resource = :resource",
    )


# Keys are compared byte by byte: a collation could take two of them for one.
_CREATE: dict[Dialect, str] = {
    "postgresql": """\
DO $$ BEGIN
  -- Two sessions that create one table at the same moment would collide in the catalogue.
  PERFORM pg_advisory_xact_lock(hashtext('{key}'));
  CREATE TABLE IF NOT EXISTS {table} (
    resource text COLLATE "C" PRIMARY KEY,
    token bigint NOT NULL
  ) WITH (fillfactor = 50);
END $$""",
    "sqlite": """\
CREATE TABLE IF NOT EXISTS {table} (
  resource TEXT PRIMARY KEY NOT NULL,
  token INTEGER NOT NULL
) WITHOUT ROWID""",
    "mysql": """\
CREATE TABLE IF NOT EXISTS {table} (
  resource VARBINARY(560) PRIMARY KEY,
  token BIGINT NOT NULL
) ENGINE = InnoDB""",
}

# Readers share the row's lock, so they do not wait for each other; a writer waits for all of them.
# No row comes back if another session made the row at this very moment: then it is asked again.
_SHARED_POSTGRESQL = """\
WITH seen AS (SELECT token FROM {table} WHERE resource = :resource FOR SHARE),
made AS (
  INSERT INTO {table} (resource, token) SELECT :resource, 0 WHERE NOT EXISTS (SELECT FROM seen)
  ON CONFLICT DO NOTHING RETURNING token
)
SELECT token FROM seen UNION ALL SELECT token FROM made"""
