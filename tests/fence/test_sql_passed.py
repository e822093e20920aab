"""PostgreSQL: what one trigger has let through in a transaction, which the trigger of each row then believes."""

from __future__ import annotations

from contextlib import closing

import psycopg
import pytest

from holdfast.fence.sql_triggers import POSTGRESQL_NEEDED, create_statements
from tests.fence.databases import SqlDatabase

pytestmark = pytest.mark.parametrize("database", ["postgresql"], indirect=True)


# Pairs of fenced tables whose keys differ in one thing only; the letters of a setting's name have no case.
NEAR = {
    "schemas": ("{0}.kid", "{0}b.kid", "kid", "kid"),
    "keys": ("{0}.kid", "{0}.other", "kid", "Kid"),
    "spaces": ("{0}.kid", "{0}b.kid", "kid ", " kid"),
}


@pytest.mark.parametrize("near", NEAR)
def test_a_token_that_passed_one_fence_has_passed_no_other(database: SqlDatabase, name: str, near: str) -> None:
    schema = "s" + name.replace(":", "_")
    one, other, key, other_key = (part.format(schema) for part in NEAR[near])
    with database.transaction() as connection:
        for made in (schema, f"{schema}b"):
            database.execute(connection, f"CREATE SCHEMA {made}")
        for table, resource in ((one, key), (other, other_key)):
            place = table.partition(".")[0]
            database.execute(connection, f"CREATE TABLE {place}.parent_of_{table.partition('.')[2]} (id int)")
            database.execute(
                connection, f"CREATE TABLE {table} () INHERITS ({place}.parent_of_{table.partition('.')[2]})"
            )
            database.execute(connection, f"INSERT INTO {table} VALUES (1)")
            # The names in the statements are plain, as one script for each tenant has them.
            database.execute(connection, f"SET LOCAL search_path = {place}")
            for statement in create_statements("postgresql", table.partition(".")[2], resource):
                database.execute(connection, statement)
    for table, token in ((one, 10), (other, 100)):
        with database.transaction() as connection:
            database.execute(connection, f"SET LOCAL holdfast.token = '{token}'; UPDATE {table} SET id = 2")

    with closing(database.connect()) as connection:
        database.execute(connection, f"SET LOCAL holdfast.token = '50'; UPDATE {one} SET id = 3")
        with pytest.raises(psycopg.Error, match=r"token 50 is stale .*: 100 was seen"):
            database.execute(connection, f"UPDATE {other.replace('.', '.parent_of_')} SET id = 66")
    with database.transaction() as connection:
        database.execute(connection, f"DROP SCHEMA {schema}, {schema}b CASCADE")


def test_a_schema_that_is_copied_by_its_text_has_a_fence_of_its_own(database: SqlDatabase, name: str) -> None:
    """As tools do that make a tenant's schema from a template."""
    one = "s" + name.replace(":", "_")
    other = one.replace("s", "t", 1)
    with database.transaction() as connection:
        for schema in (one, other):
            database.execute(connection, f"CREATE SCHEMA {schema}")
            database.execute(connection, f"CREATE TABLE {schema}.parent (id int)")
            database.execute(connection, f"CREATE TABLE {schema}.kid () INHERITS ({schema}.parent)")
            database.execute(connection, f"INSERT INTO {schema}.kid VALUES (1)")
        for statement in create_statements("postgresql", f"{one}.kid", "kid", f"{one}.holdfast_fence"):
            database.execute(connection, statement)
        database.execute(connection, f"CREATE TABLE {other}.holdfast_fence (LIKE {one}.holdfast_fence INCLUDING ALL)")
        made = f"SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = '{one}'::regnamespace"
        triggers = f"SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = '{one}.kid'::regclass"
        for (text,) in [*database.execute(connection, made), *database.execute(connection, triggers)]:
            database.execute(connection, text.replace(one, other))
    for schema, token in ((one, 10), (other, 100)):
        with database.transaction() as connection:
            database.execute(connection, f"SET LOCAL holdfast.token = '{token}'; UPDATE {schema}.kid SET id = 2")

    with closing(database.connect()) as connection:
        database.execute(connection, f"SET LOCAL holdfast.token = '50'; UPDATE {one}.kid SET id = 3")
        with pytest.raises(psycopg.Error, match="100 was seen"):
            database.execute(connection, f"UPDATE {other}.parent SET id = 66")
    with database.transaction() as connection:
        database.execute(connection, f"DROP SCHEMA {one}, {other} CASCADE")


def test_a_postgresql_that_is_too_old_for_the_ddl_is_named_by_it(database: SqlDatabase) -> None:
    _, function, *_ = create_statements("postgresql", "accounts", None)
    newer = function.replace(f"< {POSTGRESQL_NEEDED}0000", "< 990000")

    assert newer != function
    with pytest.raises(psycopg.Error, match=f"needs PostgreSQL {POSTGRESQL_NEEDED} or newer"):
        with database.transaction() as connection:
            database.execute(connection, newer)
