"""What PostgreSQL says when something is wrong, in our words."""

from __future__ import annotations

from holdfast.engines.postgres.proxy import EXPLANATION
from holdfast.engines.postgres.wire import MOVED, SqlError
from holdfast.errors import EngineFailure, Outcome

AGAIN = frozenset({
    "40001",  # serialization failure
    "40P01",  # deadlock, which the order of our locks excludes, but not that of a trigger or of somebody's DDL
    "55P03",  # a lock was not to be had within lock_timeout
    "23505",  # two of us made the same row at the same moment
    "0A000",  # "cached plan must not change result type": the schema was migrated under us
    "26000",  # a prepared statement is not there: somebody reset the session
    "42P05",  # a prepared statement is there already
})  # fmt: skip
"""Errors after which the same step, done again, can succeed. Nothing of it was kept."""

_ADVICE = {
    "53100": "the disk of the server is full; nothing was written",
    "53200": "the server is out of memory, or of room for locks (max_locks_per_transaction)",
    "53300": "the server has no connection left (max_connections)",
    "25006": "the server is read-only: a standby, or in recovery; give all hosts and target_session_attrs=read-write",
    "42501": "the role lacks a right there; an administrator can run `holdfast postgres ddl`, which grants it",
    "42P01": "the schema of the lock table is gone",
    "3F000": "the schema of the lock table is gone",
    "57014": "the server cancelled the statement",
    MOVED: EXPLANATION,
}


def unavailable(address: str, error: SqlError) -> EngineFailure:
    """The server's refusal. It refuses before it commits, so nothing was done."""
    advice = _ADVICE.get(error.state)
    return EngineFailure(address, f"{advice} ({error})" if advice else str(error), "not done")


def lost(address: str, problem: object, committing: bool) -> EngineFailure:
    """A connection that broke, or an answer that did not come. Only a commit on its way leaves the outcome open."""
    outcome: Outcome = "unknown" if committing else "not done"
    return EngineFailure(address, str(problem), outcome)
