"""The advisory lock keys of a name.

A name's lock is one 64-bit key. Two names with one key would keep each other out for no reason, so
whoever takes the key has taken before, shared and never waited for, a second key made by another hash
from PostgreSQL's other key space: the name's tag. Somebody who holds the lock without our tag holds it
under another name.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from holdfast.engines.postgres.wire import Statement
from holdfast.model import Claim

CLOCK = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"


class Keys(NamedTuple):
    """The lock, and the two halves of its tag."""

    lock: int
    tag: tuple[int, int]

    @property
    def values(self) -> list[bytes]:
        """As a statement takes them."""
        return [b"%d" % self.lock, b"%d" % self.tag[0], b"%d" % self.tag[1]]


@lru_cache(4096)
def keys_of(kind: str, name: str) -> Keys:
    """The keys of a lock; `kind` carries the namespace."""
    text = f"{kind}\0{name}".encode()
    lock = int.from_bytes(blake2b(text, digest_size=8, person=b"holdfast lock").digest(), "big", signed=True)
    tag = blake2b(text, digest_size=8, person=b"holdfast tag").digest()
    return Keys(lock, (int.from_bytes(tag[:4], "big", signed=True), int.from_bytes(tag[4:], "big", signed=True)))


# The tag comes first. The server grants the lock to a waiter that may be slow to wake, and it has its tag by then.
_TAG = "pg_advisory_lock_shared($2, $3) IS NOT NULL"
_NO_TAG = "pg_advisory_unlock_shared($2, $3)"
_TAKEN = f"json_build_array({CLOCK}, pg_backend_pid())"
# CASE evaluates its condition first: the clock is read under the lock.
_WAIT = f"SELECT CASE WHEN {_TAG} AND {{lock}}($1) IS NOT NULL THEN {_TAKEN} END"
_TRY = f"SELECT CASE WHEN {_TAG} AND {{lock}}($1) THEN {_TAKEN} WHEN {_NO_TAG} THEN NULL END"
# A wait that is cancelled may have been granted by then, and an error gives back nothing that a session holds. But to
# unlock what is not held would be written to the server's log.
_HELD = (
    "EXISTS (SELECT 1 FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory' AND objsubid = 1 AND granted"
    " AND classid = (($1 >> 32) & 4294967295)::oid AND objid = ($1 & 4294967295)::oid AND mode = '{mode}')"
)
_GIVE_UP = f"SELECT json_build_array(CASE WHEN {_HELD} THEN {{unlock}}($1) END, {_NO_TAG})"
_GIVE = f"SELECT json_build_array({{unlock}}($1), {_NO_TAG})"
STATEMENTS = tuple(
    Statement(f"hf_{name}", "int8, int, int", sql)
    for name, sql in (
        ("wait", _WAIT.format(lock="pg_advisory_lock")),
        ("wait_shared", _WAIT.format(lock="pg_advisory_lock_shared")),
        ("try", _TRY.format(lock="pg_try_advisory_lock")),
        ("try_shared", _TRY.format(lock="pg_try_advisory_lock_shared")),
        ("give", _GIVE.format(unlock="pg_advisory_unlock")),
        ("give_shared", _GIVE.format(unlock="pg_advisory_unlock_shared")),
        ("give_up", _GIVE_UP.format(unlock="pg_advisory_unlock", mode="ExclusiveLock")),
        ("give_up_shared", _GIVE_UP.format(unlock="pg_advisory_unlock_shared", mode="ShareLock")),
        ("give_tag", f"SELECT to_json($1 IS NOT NULL AND {_NO_TAG})"),
    )
)
"""Taking gives the token and the server process, or null. Giving back says whether it was held."""


def take(claim: Claim) -> bytes:
    """The statement that takes the lock. It waits if the claim does."""
    if claim.mode == "shared":
        return b"hf_wait_shared" if claim.waits else b"hf_try_shared"
    return b"hf_wait" if claim.waits else b"hf_try"


def give(claim: Claim) -> bytes:
    """The statement that gives it back."""
    return b"hf_give_shared" if claim.mode == "shared" else b"hf_give"


def give_up(claim: Claim) -> bytes:
    """The statement after a wait that ended with an error: gives back whatever it has taken by then."""
    return b"hf_give_up_shared" if claim.mode == "shared" else b"hf_give_up"


# PostgreSQL 12 and 13 have no such column. There it is the moment of the statement that waits, which is the same.
_WAITS = "coalesce((to_jsonb(l) ->> 'waitstart')::timestamptz, a.state_change)"


def parties(keys: Keys) -> str:
    """Who holds and who waits, in order: process, whether granted, mode, whether it has our tag, and who it is."""
    high, low = (keys.lock >> 32) & 0xFFFFFFFF, keys.lock & 0xFFFFFFFF
    first, second = keys.tag[0] & 0xFFFFFFFF, keys.tag[1] & 0xFFFFFFFF
    return (
        # One look for both: a lock that is given back between two looks would seem to be there without its tag.
        "WITH found AS MATERIALIZED (SELECT * FROM pg_locks WHERE locktype = 'advisory')"
        " SELECT coalesce(json_agg(json_build_array(l.pid, l.granted, l.mode, EXISTS (SELECT 1 FROM found t"
        f" WHERE t.pid = l.pid AND t.classid = {first}::bigint::oid"
        f" AND t.objid = {second}::bigint::oid AND t.objsubid = 2), coalesce(a.application_name, ''),"
        " coalesce(host(a.client_addr), ''),"
        f" extract(epoch FROM {_WAITS}), extract(epoch FROM clock_timestamp()))"
        f" ORDER BY l.granted DESC, {_WAITS}, l.pid), '[]')"
        " FROM found l LEFT JOIN pg_stat_activity a ON a.pid = l.pid"
        f" WHERE l.objsubid = 1 AND l.classid = {high}::bigint::oid"
        f" AND l.objid = {low}::bigint::oid"
        " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
