"""Errors that go away by themselves never reach the caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

import holdfast
from tests.engines.postgres.patience import eventually

Connect = Callable[..., holdfast.Client]

TRAP = """
CREATE SEQUENCE {schema}.attempts;
CREATE FUNCTION {schema}.fail() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  -- A sequence counts on, also in what is rolled back.
  IF nextval('{schema}.attempts') <= 3 THEN
    RAISE EXCEPTION 'not now' USING ERRCODE = '{state}';
  END IF;
  RETURN coalesce(NEW, OLD);
END $$;
CREATE TRIGGER fail BEFORE INSERT OR DELETE ON {schema}.claims FOR EACH ROW EXECUTE FUNCTION {schema}.fail();
"""


@pytest.mark.parametrize("state", ["40001", "40P01", "55P03"])
def test_a_serialization_failure_a_deadlock_and_a_lock_limit_are_tried_again(
    connect: Connect, database: psycopg.Connection[Any], schema: str, state: str
) -> None:
    locks = connect()
    locks.list()
    database.execute(TRAP.format(schema=schema, state=state))

    grant = locks.lock("k").acquire(wait=5.0)

    assert attempts(database, schema) >= 4
    database.execute(f"ALTER SEQUENCE {schema}.attempts RESTART")
    grant.release()
    assert attempts(database, schema) >= 4
    assert locks.inspect("k").holders == ()


def test_the_end_of_a_session_is_tried_again(connect: Connect, database: psycopg.Connection[Any], schema: str) -> None:
    locks = connect()
    locks.lock("k").acquire(wait=30.0).release()
    trap = TRAP.format(schema=schema, state="40001").replace("INSERT OR DELETE", "UPDATE").replace("claims", "sessions")
    database.execute(trap)

    locks.close()

    assert attempts(database, schema) >= 4
    assert database.execute(f"SELECT bool_and(ended) FROM {schema}.sessions").fetchone() == (True,)


def attempts(database: psycopg.Connection[Any], schema: str) -> int:
    row = database.execute(f"SELECT last_value FROM {schema}.attempts").fetchone()
    assert row is not None
    return int(row[0])


def test_trying_again_ends_with_the_deadline(connect: Connect, database: psycopg.Connection[Any], schema: str) -> None:
    locks = connect()
    locks.list()
    database.execute(TRAP.format(schema=schema, state="40001").replace("<= 3", "<= 1000000000"))

    with pytest.raises(holdfast.EngineUnavailable):
        # "Not done" between two tries; "unknown" if the end comes in the middle of one, whose answer nobody has seen.
        locks.lock("k").acquire(wait=0.3)

    assert attempts(database, schema) >= 4
    database.execute(f"DROP TRIGGER fail ON {schema}.claims")
    eventually(lambda: locks.inspect("k").holders == locks.inspect("k").waiters == ())
    locks.lock("k").acquire(wait=5.0).release()
