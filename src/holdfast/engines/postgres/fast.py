"""Shortcuts: what callers do all day, each as one statement in one round trip.

A step of the lock table needs two or three round trips while its bucket is locked; with these, a pair takes
two thirds of the time, and a lock that many want is passed on more than twice as often. ENTER and RELEASE work
only where nothing else is in the way, dead or alive, and nobody watches. QUEUE and PASS_ON repeat the rule of the
lock table for the simplest of lines: plain names, exclusive claims at its head, everybody alive, an owner that has
nothing else. In every other case a statement changes nothing, and the lock table decides as it always does. That
both come to the same is tested step for step, on random commands.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from holdfast.core import names
from holdfast.core.table import commands as cm
from holdfast.core.table.rows import Session, party
from holdfast.engines.postgres import statements as st
from holdfast.engines.postgres.rows import Asked, clean, crosses, some_row
from holdfast.engines.postgres.wire import Statement
from holdfast.model import Claim, Place

NO_FLUSH = "pg_catalog.set_config('synchronous_commit','off',true)"

_NOW = f"WITH t(now) AS MATERIALIZED (SELECT {st.CLOCK})"
_ALIVE = "EXISTS (SELECT 1 FROM sessions WHERE id = $1 AND NOT ended AND expires_at > (SELECT now FROM t))"
_ALL_ALIVE = f"NOT EXISTS ({st.UNBURIED})"
_NO_STONE = "NOT EXISTS (SELECT 1 FROM tombstones WHERE session = $1 AND claim_id = $2)"
_NOBODY_WATCHES = "NOT EXISTS (SELECT 1 FROM watches)"
_USUAL = f"{_ALIVE} AND {_NO_STONE} AND {_NOBODY_WATCHES}"

# $1 session, $2 claim id, $3 bucket, $4 kind, $5 name, $6 owner, $7 mode, $8 max_hold, $9 note, $10 thread.
_NEWCOMER = "text, text, int, text, text, text, text, float8, text, text"
_NEW_ID = "NOT EXISTS (SELECT 1 FROM claims WHERE id = $2)"
_ROW = "$2, $1, $6, $4, $5, $7, false, 0, false, $8, $9, $10, n.last, t.now"
ENTER = Statement(
    "hf_fast_enter", _NEWCOMER,
    f"{_NOW}, n AS (UPDATE counters SET last = last + 1 WHERE bucket = $3 AND {_USUAL} AND {_NEW_ID}"
    " AND NOT EXISTS (SELECT 1 FROM claims WHERE kind = $4 AND name = $5) RETURNING last),"
    f" put AS (INSERT INTO claims SELECT {_ROW}, n.last, NULL, t.now + $8, '' FROM n, t RETURNING token)"
    " SELECT to_json(token) FROM put",
)  # fmt: skip
# $1 session, $2 claim id, $3 kind, $4 name.
RELEASE = Statement(
    "hf_fast_release", "text, text, text, text",
    f"{_NOW}, gone AS (DELETE FROM claims WHERE id = $2 AND token IS NOT NULL AND dies_at IS NULL AND {_USUAL}"
    " AND NOT EXISTS (SELECT 1 FROM claims WHERE kind = $3 AND name = $4 AND token IS NULL) RETURNING id)"
    " SELECT to_json(id) FROM gone",
)  # fmt: skip

# The same where a line stands behind it: the lock goes to the first, if both are exclusive and nobody's life is in
# doubt. $5 bucket, $6 the sessions of this process, which are told without the server's help. Others are told their
# token with the news, unless the grant has an end of its own, which would have to count from now.
PASS_ON = Statement(
    "hf_fast_pass_on", "text, text, text, text, int, text[]",
    f"{_NOW}, first AS MATERIALIZED (SELECT * FROM claims WHERE kind = $3 AND name = $4 AND token IS NULL"
    " ORDER BY ord, id LIMIT 1),"
    " gone AS (DELETE FROM claims WHERE id = $2 AND token IS NOT NULL AND dies_at IS NULL AND mode = 'exclusive'"
    f" AND NOT subtree AND {_USUAL} AND {_ALL_ALIVE}"
    " AND EXISTS (SELECT 1 FROM first f JOIN sessions s ON s.id = f.session WHERE NOT s.ended AND f.mode = 'exclusive'"
    " AND NOT f.subtree AND f.dies_at IS NULL)"
    " AND NOT EXISTS (SELECT 1 FROM claims WHERE kind = $3 AND name = $4 AND id <> $2"
    " AND ord < (SELECT ord FROM first)) RETURNING id),"
    " n AS (UPDATE counters SET last = last + 1 WHERE bucket = $5 AND EXISTS (SELECT 1 FROM gone) RETURNING last),"
    " put AS (UPDATE claims c SET token = n.last, since = t.now, dies_at = t.now + c.max_hold FROM n, t"
    " WHERE c.id = (SELECT id FROM first) RETURNING c.id, c.session, c.token, c.max_hold)"
    ", news AS (SELECT *, concat_ws(' ', 'granted', id, CASE WHEN max_hold IS NULL THEN token END) AS text FROM put)"
    " SELECT json_build_array(id, session, token, max_hold, CASE WHEN session <> ALL($6) THEN (SELECT"
    f" pg_notify(s.channel, {st.signed('news.text')}) IS NULL FROM sessions s, meta m"
    " WHERE s.id = news.session AND m.key = 'secret') END) FROM news",
)  # fmt: skip

# Places at the end of a line, for owners that have nothing else: they can be part of no deadlock. $2 claim ids, $6
# owners, $9 notes and $10 threads of one session, in the order in which they came. Gives for each the claim, the time,
# who is in the way (with its session), and its place.
QUEUE = Statement(
    "hf_fast_queue", "text, text[], int, text, text, text[], text, float8, text[], text[]",
    f"{_NOW}, b AS MATERIALIZED (SELECT {st.WITH_SESSION} AS found {st.LIVE_CLAIMS} AND c.kind = $4 AND c.name = $5"
    " AND ($7 = 'exclusive' OR c.mode = 'exclusive') ORDER BY c.ord, c.id LIMIT 1),"
    " w AS MATERIALIZED (SELECT id, owner, note, thread, row_number() OVER (ORDER BY came) AS number"
    " FROM unnest($2, $6, $9, $10) WITH ORDINALITY AS w(id, owner, note, thread, came)"
    " WHERE NOT EXISTS (SELECT 1 FROM tombstones s WHERE s.session = $1 AND s.claim_id = w.id)"
    " AND NOT EXISTS (SELECT 1 FROM claims c WHERE c.id = w.id)"
    " AND NOT EXISTS (SELECT 1 FROM claims c WHERE c.owner = w.owner)),"
    " n AS (UPDATE counters SET last = last + (SELECT count(*) FROM w) WHERE bucket = $3 AND EXISTS (SELECT 1 FROM b)"
    f" AND EXISTS (SELECT 1 FROM w) AND {_ALIVE} AND {_NOBODY_WATCHES} AND {_ALL_ALIVE}"
    " RETURNING last - (SELECT count(*) FROM w) AS before),"
    " put AS (INSERT INTO claims SELECT w.id, $1, w.owner, $4, $5, $7, false, 0, false, $8, w.note, w.thread,"
    " n.before + w.number, t.now, NULL, NULL, NULL, '' FROM n, t, w RETURNING id, since, ord)"
    " SELECT coalesce(json_agg(json_build_array(put.id, put.since, (SELECT found FROM b), put.ord - n.before"
    " + (SELECT count(*) FROM claims WHERE kind = $4 AND name = $5 AND token IS NULL))), '[]') FROM put, n",
)  # fmt: skip

# Waiting claims that leave a line, where an exclusive holder stands before them: nobody else can be granted because of
# that. $1 claim ids, $2 kind, $3 name.
LEAVE = Statement(
    "hf_fast_leave", "text[], text, text",
    f"{_NOW}, gone AS (DELETE FROM claims c WHERE id = ANY($1) AND token IS NULL AND {_NOBODY_WATCHES}"
    " AND NOT EXISTS (SELECT 1 FROM tombstones s WHERE s.session = c.session AND s.claim_id = c.id)"
    " AND ord > (SELECT min(h.ord) FROM claims h JOIN sessions s ON s.id = h.session, t"
    " WHERE h.kind = $2 AND h.name = $3 AND h.token IS NOT NULL AND h.mode = 'exclusive' AND NOT s.ended"
    " AND s.expires_at > t.now AND (h.dies_at IS NULL OR h.dies_at > t.now)) RETURNING id)"
    " SELECT coalesce(json_agg(id), '[]') FROM gone",
)  # fmt: skip


def fits(claim: Claim) -> bool:
    """Whether only claims on its own name can be in its way, and one is enough."""
    return not claim.limit and not claim.reentrant and not crosses(claim)


def queue(claims: Sequence[Claim]) -> Asked:
    """What gives claims on a crowded lock their places in line; they are alike in all but their owners and texts."""
    c = claims[0]
    return QUEUE, (
        c.session, [each.id for each in claims], names.bucket(c.name), c.kind, c.name,
        [each.owner for each in claims], c.mode, c.max_hold, [clean(each.note) for each in claims],
        [clean(each.thread) for each in claims],
    )  # fmt: skip


def leave(claims: Sequence[Claim]) -> Asked:
    """What takes waiting claims out of the queue of one name."""
    return LEAVE, ([each.id for each in claims], claims[0].kind, claims[0].name)


def place(found: list[Any]) -> Place:
    """The place that one of them got."""
    _, now, (blocker, session), position = found
    return Place(position, party(some_row(blocker), Session(*session), now, now))


def pass_on(claim: Claim, own: Collection[str]) -> Asked:
    """What gives a crowded lock to the next in line."""
    return PASS_ON, (claim.session, claim.id, claim.kind, claim.name, names.bucket(claim.name), list(own))


def statement(command: cm.Enter | cm.Release) -> Asked:
    """What does all of it, if it can."""
    c = command.claim
    if isinstance(command, cm.Release):
        return RELEASE, (c.session, c.id, c.kind, c.name)
    return ENTER, (
        c.session, c.id, names.bucket(c.name), c.kind, c.name, c.owner, c.mode, c.max_hold, clean(c.note),
        clean(c.thread),
    )  # fmt: skip
