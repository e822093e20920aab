"""DDL by which a database itself refuses an older token, whoever writes. Pure text.

The trigger takes the token from the database session, and refuses a write without one: a column
would pass for code that forgot it. PostgreSQL: `SET LOCAL holdfast.token = '17'`; MariaDB and MySQL:
`SET @holdfast_token = '17'`; SQLite: a registered function `holdfast_token()`. A shared one is `17;shared`.
No statement has a percent sign in it, which some drivers would take for a parameter.
"""

from __future__ import annotations

from zlib import crc32

from holdfast.errors import InvalidRequest
from holdfast.fence.sql_statements import DEFAULT_TABLE, Dialect, check_identifier, quoted, statements
from holdfast.fence.token import check_resource

MISSING = "holdfast: a write to {table} needs a token"
STALE = "holdfast: token {token} is stale for {table}: {highest} was seen"
STALE_WITHOUT_NUMBERS = "holdfast: the token is stale for {table}"

_LONGEST_NAME = 63
_EVENTS = ("INSERT", "UPDATE", "DELETE")


def create_statements(
    dialect: Dialect, table: str | None, resource: str | None, fence: str = DEFAULT_TABLE
) -> list[str]:
    """Statements that make the fence's table and, if a table is named, fence it under a resource key (its name)."""
    if table is None:
        return [statements(dialect, fence).create]
    key = check_resource(check_identifier(table) if resource is None else resource)
    fence = _seen_from(dialect, table, check_identifier(fence, "fence"))
    return [statements(dialect, fence).create, *_CREATE[dialect](table, key, quoted(dialect, fence))]


def drop_statements(dialect: Dialect, table: str | None, fence: str = DEFAULT_TABLE) -> list[str]:
    """Statements that take the fence from a table again; without a table, those that forget all tokens."""
    if table is None:
        return [f"DROP TABLE IF EXISTS {quoted(dialect, fence)}"]
    return _DROP[dialect](table)


def script(dialect: Dialect, parts: list[str]) -> str:
    """The statements as the database's own command line reads them."""
    if dialect != "mysql":
        return "\n\n".join(f"{part};" for part in parts) + "\n"
    return "DELIMITER //\n\n" + "\n\n".join(f"{part}//" for part in parts) + "\n\nDELIMITER ;\n"


def _seen_from(dialect: Dialect, table: str, fence: str) -> str:
    """The fence's table as a trigger finds it. A plain name is of the trigger's own schema, but in PostgreSQL."""
    schema, of_fence = _schema(table), _schema(fence)
    if dialect == "postgresql" or not schema or schema == of_fence:
        return fence
    if not of_fence:
        return f"{schema}.{fence}"
    if dialect == "sqlite":
        raise InvalidRequest("fence", fence, f"SQLite's triggers reach only their own database: keep it in {schema}")
    return fence


def _schema(table: str) -> str:
    return table.rpartition(".")[0]


def _routine(dialect: Dialect, table: str) -> str:
    """The routine's name, in the schema of the table."""
    return _beside(dialect, table, "holdfast_fence")


def _trigger(dialect: Dialect, table: str, event: str) -> str:
    """The trigger's name, in the schema of the table."""
    return _beside(dialect, table, f"holdfast_fence_{event.lower()}")


def _beside(dialect: Dialect, table: str, prefix: str) -> str:
    schema, _, name = check_identifier(table).rpartition(".")
    own = _shortened(f"{prefix}_{name}")
    return quoted(dialect, f"{schema}.{own}" if schema else own)


def _shortened(name: str) -> str:
    """A name that every database takes, and that no other long one is shortened to."""
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 9]}_{crc32(name.encode()):08x}"


def _create_postgresql(table: str, key: str, fence: str) -> list[str]:
    routine, literal = _routine("postgresql", table), key.replace("'", "''")
    stale = STALE.format(token="', presented, '", table=table, highest="', highest, '")
    # One table of tokens for all, whatever schemas a writer looks into: those of whoever makes the fence.
    return [
        f"""\
CREATE OR REPLACE FUNCTION {routine}() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $fence$
DECLARE
  told text := current_setting('holdfast.token', true);
  presented bigint;
  highest bigint;
BEGIN
  IF told IS NULL OR told !~ '^[0-9]{{1,16}}(;shared)?$' THEN
    RAISE EXCEPTION '{MISSING.format(table=table)}'
      USING ERRCODE = 'HF428', HINT = 'In the same transaction: SET LOCAL holdfast.token = ''17''';
  END IF;
  presented := split_part(told, ';', 1)::bigint;
  IF right(told, 7) = ';shared' THEN
    INSERT INTO {fence} (resource, token) VALUES ('{literal}', 0) ON CONFLICT DO NOTHING;
    SELECT token INTO highest FROM {fence} WHERE resource = '{literal}' FOR SHARE;
  ELSE
    INSERT INTO {fence} AS fence (resource, token) VALUES ('{literal}', presented)
      ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE fence.token <= excluded.token;
    IF NOT FOUND THEN
      SELECT token INTO highest FROM {fence} WHERE resource = '{literal}';
    END IF;
  END IF;
  IF highest > presented THEN
    RAISE EXCEPTION USING MESSAGE = concat('{stale}'),
      ERRCODE = 'HF409', HINT = 'The lock has passed to a later holder.';
  END IF;
  RETURN NULL;
END $fence$""",
        f"""\
CREATE OR REPLACE TRIGGER holdfast_fence
  BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON {quoted("postgresql", table)}
  FOR EACH STATEMENT EXECUTE FUNCTION {routine}()""",
    ]


def _drop_postgresql(table: str) -> list[str]:
    return [
        f"DROP TRIGGER IF EXISTS holdfast_fence ON {quoted('postgresql', table)}",
        f"DROP FUNCTION IF EXISTS {_routine('postgresql', table)}()",
    ]


def _create_mysql(table: str, key: str, fence: str) -> list[str]:
    routine, literal = _routine("mysql", table), f"x'{key.encode().hex()}'"
    stale = STALE.format(token="', presented, '", table=table, highest="', highest, '")
    return [
        *_drop_mysql(table),
        f"""\
CREATE PROCEDURE {routine}()
BEGIN
  DECLARE told VARCHAR(64) DEFAULT @holdfast_token;
  DECLARE presented BIGINT;
  DECLARE highest BIGINT;
  DECLARE problem VARCHAR(128);
  IF told IS NULL OR told NOT REGEXP '^[0-9]{{1,16}}(;shared)?$' THEN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{MISSING.format(table=table)}';
  END IF;
  SET presented = CAST(SUBSTRING_INDEX(told, ';', 1) AS SIGNED);
  IF right(told, 7) = ';shared' THEN
    INSERT INTO {fence} (resource, token) VALUES ({literal}, 0) ON DUPLICATE KEY UPDATE token = token;
  ELSE
    INSERT INTO {fence} (resource, token) VALUES ({literal}, presented)
      ON DUPLICATE KEY UPDATE token = GREATEST(token, presented);
  END IF;
  -- A plain SELECT would read the transaction's snapshot, which may be older.
  SELECT token INTO highest FROM {fence} WHERE resource = {literal} FOR UPDATE;
  IF highest > presented THEN
    SET problem = CONCAT('{stale}');
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = problem;
  END IF;
END""",
        *(
            f"CREATE TRIGGER {_trigger('mysql', table, event)} BEFORE {event} ON {quoted('mysql', table)}\n"
            f"  FOR EACH ROW CALL {routine}()"
            for event in _EVENTS
        ),
    ]


def _drop_mysql(table: str) -> list[str]:
    return [
        *(f"DROP TRIGGER IF EXISTS {_trigger('mysql', table, event)}" for event in _EVENTS),
        f"DROP PROCEDURE IF EXISTS {_routine('mysql', table)}",
    ]


def _create_sqlite(table: str, key: str, fence: str) -> list[str]:
    literal, presented = key.replace("'", "''"), "CAST(holdfast_token() AS INTEGER)"
    # A trigger names tables of its own database only, and by their plain names.
    on, fence = quoted("sqlite", table.rpartition(".")[2]), fence.rpartition(".")[2]
    # No ON CONFLICT in here: that of the statement that fires the trigger would take its place.
    return [
        f"""\
CREATE TRIGGER IF NOT EXISTS {_trigger("sqlite", table, event)} BEFORE {event} ON {on}
BEGIN
  SELECT RAISE(ABORT, '{MISSING.format(table=table)}')
    WHERE coalesce(holdfast_token(), '') NOT GLOB '[0-9]*';
  SELECT RAISE(ABORT, '{STALE_WITHOUT_NUMBERS.format(table=table)}')
    FROM {fence} WHERE resource = '{literal}' AND token > {presented};
  UPDATE {fence} SET token = {presented}
    WHERE resource = '{literal}' AND token < {presented} AND substr(holdfast_token(), -7) <> ';shared';
  INSERT INTO {fence} (resource, token) SELECT '{literal}', {presented}
    WHERE substr(holdfast_token(), -7) <> ';shared'
    AND NOT EXISTS (SELECT 1 FROM {fence} WHERE resource = '{literal}');
END"""
        for event in _EVENTS
    ]


def _drop_sqlite(table: str) -> list[str]:
    return [f"DROP TRIGGER IF EXISTS {_trigger('sqlite', table, event)}" for event in _EVENTS]


_CREATE = {"postgresql": _create_postgresql, "mysql": _create_mysql, "sqlite": _create_sqlite}
_DROP = {"postgresql": _drop_postgresql, "mysql": _drop_mysql, "sqlite": _drop_sqlite}
