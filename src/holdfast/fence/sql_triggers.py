"""DDL by which a database itself refuses an older token, whoever writes. Pure text.

The trigger takes the token from the database session, and refuses a write without one: a column
would pass for code that forgot it. PostgreSQL: `SET LOCAL holdfast.token = '17'`; MariaDB and MySQL:
`SET @holdfast_token = '17'`; SQLite: a registered function `holdfast_token()`. A shared one is `17;shared`.
No statement has a percent sign in it, which some drivers would take for a parameter.
"""

from __future__ import annotations

from itertools import count
from zlib import crc32

from holdfast.errors import InvalidRequest
from holdfast.fence.sql_statements import DEFAULT_TABLE, Dialect, check_identifier, quoted, statements
from holdfast.fence.token import check_resource

MISSING = "holdfast: a write to {table} needs a token"
STALE = "holdfast: token {token} is stale for {table}: {highest} was seen"
STALE_WITHOUT_NUMBERS = "holdfast: the token is stale for {table}"

POSTGRESQL_NEEDED = 14
"""The first with CREATE OR REPLACE TRIGGER, which leaves no moment without the trigger."""
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
    if dialect == "sqlite":
        # In one transaction: at no moment is the table there without its triggers.
        parts = ["BEGIN IMMEDIATE", *parts, "COMMIT"]
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
    routine, literal, on = _routine("postgresql", table), _literal(key), quoted("postgresql", table)
    place = _absent_from("fence_table", key)
    statement_trigger = f"""\
CREATE OR REPLACE TRIGGER holdfast_fence
  BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON {on}
  FOR EACH STATEMENT EXECUTE FUNCTION {routine}()"""
    # A write that names a parent of this table, or a partition of it, fires no trigger for the statement here.
    row_trigger = f"""\
CREATE OR REPLACE TRIGGER {_row_trigger(table)}
  BEFORE INSERT OR UPDATE OR DELETE ON {on}
  FOR EACH ROW WHEN (coalesce(nullif(pg_catalog.current_setting({_passed(place, literal)}, true), '')
    <> coalesce(pg_catalog.current_setting('holdfast.token', true), ''), true))
  EXECUTE FUNCTION {routine}()"""
    function = _function(table, routine, place, literal)
    return [_with_place_found([function, statement_trigger, row_trigger], routine, fence, place)]


def _passed(place: str, literal: str) -> str:
    """SQL for the name of the setting that says which token has passed this row of this fence's table.

    The row is named by the text that the check itself uses, at run time: a schema that is copied under
    another name, with the names in its functions and triggers replaced, has settings of its own.
    """
    row = f"'{place} ' || {literal}"
    return f"'holdfast.passed_' || pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to({row}, 'UTF8')), 'hex')"


def _function(table: str, routine: str, place: str, literal: str) -> str:
    stale = STALE.format(token="', presented, '", table=table, highest="', highest, '")
    return f"""\
CREATE OR REPLACE FUNCTION {routine}() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS {{tag}}
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
    INSERT INTO {place} (resource, token) VALUES ({literal}, 0) ON CONFLICT DO NOTHING;
    SELECT token INTO highest FROM {place} WHERE resource = {literal} FOR SHARE;
  ELSE
    INSERT INTO {place} AS fence (resource, token) VALUES ({literal}, presented)
      ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE fence.token <= excluded.token;
    IF NOT FOUND THEN
      SELECT token INTO highest FROM {place} WHERE resource = {literal};
    END IF;
  END IF;
  IF highest > presented THEN
    RAISE EXCEPTION USING MESSAGE = concat('{stale}'),
      ERRCODE = 'HF409', HINT = 'The lock has passed to a later holder.';
  END IF;
  -- Until this transaction ends no later token can pass: the rows of a statement need not be checked one by one.
  PERFORM set_config({_passed(place, literal)}, told, true);
  IF TG_LEVEL = 'STATEMENT' THEN
    RETURN NULL;
  ELSIF TG_OP = 'DELETE' THEN
    RETURN OLD;
  END IF;
  RETURN NEW;
END {{tag}}"""


def _with_place_found(parts: list[str], routine: str, fence: str, place: str) -> str:
    """A statement that makes function and triggers with the fence's table named in full, as it is found now.

    A plain name would be looked up at each write, in the writer's schemas and among its temporary tables.
    """
    tag = _dollar_tag("".join(parts))
    function, *triggers = [part.replace("{tag}", tag) for part in parts]
    middle = _dollar_tag(function)
    made = "\n".join(f"  EXECUTE pg_catalog.replace({middle}{part}{middle}, '{place}', place);" for part in triggers)
    block = f"""
DECLARE
  place text := (SELECT pg_catalog.concat(pg_catalog.quote_ident(n.nspname), '.', pg_catalog.quote_ident(c.relname))
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = pg_catalog.to_regclass('{fence}') AND c.relpersistence <> 't');
BEGIN
  IF pg_catalog.current_setting('server_version_num')::int < {POSTGRESQL_NEEDED}0000 THEN
    RAISE EXCEPTION 'holdfast: a fence in the database needs PostgreSQL {POSTGRESQL_NEEDED} or newer';
  END IF;
  IF place IS NULL THEN
    RAISE EXCEPTION 'holdfast: there is no table {fence}, or only a temporary one';
  END IF;
  EXECUTE pg_catalog.replace({middle}{function}{middle}, '{place}', place);
  -- Another role may have made a function of that name before.
  EXECUTE 'ALTER FUNCTION {routine}() OWNER TO CURRENT_USER';
{made}
END """
    outer = _dollar_tag(block)
    return f"DO {outer}{block}{outer}"


def _dollar_tag(text: str) -> str:
    """A quotation mark that the text does not contain."""
    return next(tag for number in count() if (tag := f"$fence{number or ''}$") not in text)


def _absent_from(word: str, text: str) -> str:
    """A word that the text does not contain."""
    return next(found for number in count() if (found := f"@{word}{number or ''}@") not in text)


def _literal(text: str) -> str:
    """A text as PostgreSQL reads it, whatever `standard_conforming_strings` is."""
    quotes = text.replace("'", "''")
    return "E'" + quotes.replace("\\", "\\\\") + "'" if "\\" in text else f"'{quotes}'"


def _row_trigger(table: str) -> str:
    """Its name has the table's in it: the trigger of a partitioned table is there on its partitions too."""
    return quoted("postgresql", _shortened(f"holdfast_fence_row_{check_identifier(table).rpartition('.')[2]}"))


def _drop_postgresql(table: str) -> list[str]:
    return [
        f"DROP TRIGGER IF EXISTS {_row_trigger(table)} ON {quoted('postgresql', table)}",
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
    # Those of an earlier run may have another key.
    return [
        *_drop_sqlite(table),
        *(
            f"""\
CREATE TRIGGER {_trigger("sqlite", table, event)} BEFORE {event} ON {on}
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
        ),
    ]


def _drop_sqlite(table: str) -> list[str]:
    return [f"DROP TRIGGER IF EXISTS {_trigger('sqlite', table, event)}" for event in _EVENTS]


_CREATE = {"postgresql": _create_postgresql, "mysql": _create_mysql, "sqlite": _create_sqlite}
_DROP = {"postgresql": _drop_postgresql, "mysql": _drop_mysql, "sqlite": _drop_sqlite}
