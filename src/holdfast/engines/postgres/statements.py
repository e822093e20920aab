"""The lock table's questions and changes as prepared statements. Each question's answer is one JSON value.

`$1` of a question is the step's `now`; NULL in the first question of a step, which then reads the
database's clock *after* the locks are held, and gives it back as the first item of its answer.
"""

from __future__ import annotations

from holdfast.engines.postgres.wire import Statement

CLOCK = "extract(epoch FROM clock_timestamp())::float8"
_NOW = f"WITH t(now) AS MATERIALIZED (SELECT coalesce($1, {CLOCK}))"
# A scalar subquery is computed once and can be looked up in an index; a call of the clock cannot.
_AT = "(SELECT now FROM t)"
# Sessions whose time is over and whose claims may still be here; `t` has to be there.
UNBURIED = f"SELECT 1 FROM sessions WHERE buried_at IS NULL AND expires_at <= {_AT}"
# Sessions whose last heartbeat is in the future: the clock was set back. A tenth of a second is not worth a write.
_AHEAD = "SELECT id FROM sessions WHERE buried_at IS NULL AND NOT ended AND expires_at - ttl > {now} + 0.1::float8"
# The second item of every answer: whether there are sessions to be declared dead before anybody judges.
_STALE = f"EXISTS ({UNBURIED} AND NOT ended)"

_COLUMNS = (
    "id, session, owner, kind, name, mode, subtree, permits, reentrant, max_hold, note, thread, ord, since, token,"
    " slot, dies_at, ticket"
)
_ROW = f"json_build_array({', '.join('c.' + column.strip() for column in _COLUMNS.split(','))})"
_LIVE = f"NOT s.ended AND (c.dies_at IS NULL OR c.dies_at > {_AT})"
LIVE_CLAIMS = f"FROM claims c JOIN sessions s ON s.id = c.session WHERE {_LIVE}"
_SESSION = "json_build_array(s.id, s.ttl, CASE WHEN s.ended THEN 0 ELSE s.expires_at END, s.app, s.host, s.pid)"
_BY_ORDER = "ORDER BY c.ord, c.id"
_LIST = "coalesce(json_agg({what} {order}), '[]')"


def _rows(condition: str, what: str = _ROW, order: str = _BY_ORDER) -> str:
    return f"(SELECT {_LIST.format(what=what, order=order)} {LIVE_CLAIMS} AND {condition})"


def _first(condition: str, what: str = _ROW) -> str:
    return f"(SELECT {what} {LIVE_CLAIMS} AND {condition} {_BY_ORDER} LIMIT 1)"


def _question(name: str, types: str, *answers: str) -> Statement:
    sql = f"{_NOW} SELECT json_build_array({', '.join([_AT, _STALE, *answers])})"
    return Statement(f"hf_{name}", f"float8{', ' if types else ''}{types}", sql)


# What every step on a claim begins with. $2 session, $3 claim id, $4 bucket.
_KNOWN_TYPES = "text, text, int"
_KNOWN = (
    f"(SELECT {_SESSION} FROM sessions s WHERE s.id = $2)",
    f"(SELECT {_ROW} FROM claims c WHERE c.id = $3)",
    "(SELECT reason FROM tombstones WHERE session = $2 AND claim_id = $3)",
    "(SELECT last FROM counters WHERE bucket = $4)",
    "EXISTS (SELECT 1 FROM watches)",
)

# Conflicts on the own name: {k} kind, {n} name, {x} whether exclusive, {o} before which order.
_OWN = "c.kind = {k} AND c.name = {n} AND c.ord < {o} AND ({x} OR c.mode = 'exclusive')"


def _across(kind: str, above: str, low: str, high: str, more: str) -> tuple[str, str]:
    """Claims on other names that can conflict: subtrees above; all below a subtree (`low` is NULL without one)."""
    return (
        f"c.kind = {kind} AND c.subtree AND c.name = ANY({above}) AND {more}",
        f"c.kind = {kind} AND c.name > {low} AND c.name < {high} AND {more}",
    )


def _first_across(kind: str, above: str, low: str, high: str, more: str, what: str = _ROW) -> str:
    parts = _across(kind, above, low, high, more)
    either = " UNION ALL ".join(
        f"(SELECT c.ord, c.id, {what} AS found {LIVE_CLAIMS} AND {part} {_BY_ORDER} LIMIT 1)" for part in parts
    )
    return f"(SELECT found FROM ({either}) AS c {_BY_ORDER} LIMIT 1)"


_ANY_ORDER = "9223372036854775807"
# Who is in the way, with its session: whoever is refused or queued is told who that is.
WITH_SESSION = f"json_build_array({_ROW}, {_SESSION})"
_SCENE_OWN = _first(_OWN.format(k="$5", n="$6", x="$7", o=_ANY_ORDER), WITH_SESSION)
SCENE = _question("scene", f"{_KNOWN_TYPES}, text, text, bool", *_KNOWN, _SCENE_OWN)
SCENE_PATH = _question(
    "scene_path", f"{_KNOWN_TYPES}, text, text, bool, text[], text, text", *_KNOWN,
    f"coalesce({_SCENE_OWN},"
    f" {_first_across('$5', '$8', '$9', '$10', '($7 OR c.mode = $$exclusive$$)', WITH_SESSION)})",
)  # fmt: skip
_HOLDERS = _rows("c.kind = {k} AND c.name = {n} AND c.token IS NOT NULL")
_NEXT = _first("c.kind = {k} AND c.name = {n} AND c.token IS NULL AND c.ord > {o}")
SCENE_PERMITS = _question(
    "scene_permits", f"{_KNOWN_TYPES}, text, text", *_KNOWN,
    _NEXT.format(k="$5", n="$6", o="-1"), _HOLDERS.format(k="$5", n="$6"),
)  # fmt: skip

_WAITING = "SELECT name FROM claims c WHERE c.token IS NULL AND {part}"
_NAMES = "(SELECT coalesce(json_agg(name ORDER BY name), '[]') FROM ({either}) AS names)"


def _affected(kind: str, name: str) -> str:
    own = _WAITING.format(part=f"c.kind = {kind} AND c.name = {name}")
    return _NAMES.format(either=f"SELECT DISTINCT name FROM ({own}) AS own")


def _affected_path(kind: str, name: str, above: str, low: str, high: str) -> str:
    parts = (f"c.kind = {kind} AND c.name = {name}", *_across(kind, above, low, high, "true"))
    return _NAMES.format(either=" UNION ".join(_WAITING.format(part=part) for part in parts))


DEPARTURE = _question("departure", f"{_KNOWN_TYPES}, text, text", *_KNOWN, _affected("$5", "$6"))
DEPARTURE_PATH = _question(
    "departure_path", f"{_KNOWN_TYPES}, text, text, text[], text, text", *_KNOWN,
    _affected_path("$5", "$6", "$7", "$8", "$9"),
)  # fmt: skip
AFFECTED = _question("affected", "text, text", _affected("$2", "$3"))
AFFECTED_PATH = _question(
    "affected_path", "text, text, text[], text, text", _affected_path("$2", "$3", "$4", "$5", "$6")
)

_BLOCKER_OWN = _first(_OWN.format(k="$2", n="$3", x="$4", o="$5"))
BLOCKER = _question("blocker", "text, text, bool, int8", _BLOCKER_OWN)
BLOCKER_PATH = _question(
    "blocker_path", "text, text, bool, int8, text[], text, text",
    f"coalesce({_BLOCKER_OWN},"
    f" {_first_across('$2', '$6', '$7', '$8', '($4 OR c.mode = $$exclusive$$) AND c.ord < $5')})",
)  # fmt: skip
# With what blocks it on its own name, which is asked next.
_BEFORE = _OWN.format(k="$2", n="$3", x="n.mode = 'exclusive'", o="n.ord")
NEXT_WAITING = Statement(
    "hf_next_waiting", "float8, text, text, int8",
    f"{_NOW}, n AS MATERIALIZED (SELECT c.* {LIVE_CLAIMS} AND c.kind = $2 AND c.name = $3 AND c.token IS NULL"
    f" AND c.ord > $4 {_BY_ORDER} LIMIT 1)"
    f" SELECT json_build_array({_AT}, {_STALE}, (SELECT {_ROW} FROM n AS c),"
    f" (SELECT {_ROW} FROM n JOIN claims c ON {_BEFORE} JOIN sessions s ON s.id = c.session"
    f" WHERE {_LIVE} {_BY_ORDER} LIMIT 1))",
)  # fmt: skip
PERMITS = _question("permits", "text, text", _HOLDERS.format(k="$2", n="$3"))
HELD = _question(
    "held", "text, text, text, bool, bool",
    _first("c.kind = $2 AND c.name = $3 AND c.token IS NOT NULL AND c.owner = $4"
           " AND ($5 OR c.mode = 'exclusive') AND (c.subtree OR NOT $6)"),
)  # fmt: skip
POSITION = _question(
    "position", "text, text, int8",
    f"(SELECT count(*) {LIVE_CLAIMS} AND c.kind = $2 AND c.name = $3 AND c.token IS NULL AND c.ord < $4)",
)  # fmt: skip
BUSY = _question("busy", "text, text", "EXISTS (SELECT 1 FROM claims WHERE owner = $2 AND id <> $3)")
LINE = _question("line", "text, text", _rows("c.kind = $2 AND c.name = $3"))
_LINE_PARTS = ("c.kind = $2 AND c.name = $3", *_across("$2", "$4", "$5", "$6", "true"))
LINE_PATH = _question(
    "line_path", "text, text, text[], text, text",
    "(SELECT coalesce(json_agg(found ORDER BY ord, id), '[]') FROM ("
    + " UNION ALL ".join(f"SELECT c.ord, c.id, {_ROW} AS found {LIVE_CLAIMS} AND {part}" for part in _LINE_PARTS)
    + ") AS c)",
)  # fmt: skip
WAITING_OF = _question("waiting_of", "text[]", _rows("c.token IS NULL AND c.owner = ANY($2)"))
SESSIONS = _question(
    "sessions", "text[]", f"(SELECT coalesce(json_agg({_SESSION}), '[]') FROM sessions s WHERE s.id = ANY($2))"
)
BEAT = _question(
    "beat", "text, text",
    f"(SELECT {_SESSION} FROM sessions s WHERE s.id = $2)",
    "(SELECT coalesce(json_agg(json_build_array(claim_id, session, reason)), '[]') FROM tombstones"
    " WHERE session = $2 AND reason <> $3)",
)  # fmt: skip
SESSION_ROWS = _question(
    "session_rows", "text, text, int8",
    f"(SELECT coalesce(json_agg(found ORDER BY id), '[]') FROM (SELECT c.id, {_ROW} AS found FROM claims c"
    " WHERE c.id > $2 AND c.id < $3 ORDER BY c.id LIMIT $4) AS c)",
)  # fmt: skip

FUNERAL = "60::float8"
"""For how many seconds a dead session is kept for claims that were on their way: longer than any step can last."""
_DEAD_SESSIONS = (
    f"s.ended AND (s.buried_at IS NULL OR s.buried_at <= {_AT} - {FUNERAL}) ORDER BY s.expires_at, s.id LIMIT $2"
)
_DEAD_ROWS = f"c.dies_at IS NOT NULL AND c.dies_at <= {_AT} ORDER BY c.dies_at, c.id LIMIT $2"
_DEAD_CELLS = f"expires_at IS NOT NULL AND expires_at <= {_AT} ORDER BY expires_at, kind, name LIMIT $2"
# The last item is the names of all claims that clearing up can touch: their buckets have to be locked.
DEAD = _question(
    "dead", "int8",
    f"(SELECT coalesce(json_agg(found), '[]') FROM (SELECT {_SESSION} AS found FROM sessions s WHERE {_DEAD_SESSIONS})"
    " AS s)",
    f"(SELECT coalesce(json_agg(found), '[]') FROM (SELECT {_ROW} AS found FROM claims c WHERE {_DEAD_ROWS}) AS c)",
    "(SELECT coalesce(json_agg(json_build_array(kind, name)), '[]') FROM"
    f" (SELECT kind, name FROM cells WHERE {_DEAD_CELLS}) AS c)",
    "(SELECT coalesce(json_agg(DISTINCT name), '[]') FROM ("
    f"(SELECT name FROM claims c WHERE {_DEAD_ROWS}) UNION ALL"
    " (SELECT c.name FROM (SELECT s.id FROM sessions s"
    f" WHERE {_DEAD_SESSIONS}) AS s JOIN claims c ON c.id > s.id || '-' AND c.id < s.id || '.' LIMIT $2)) AS names)",
)  # fmt: skip
NEXT_DEATH = _question(
    "next_death", "",
    "(SELECT least((SELECT min(expires_at) FROM sessions WHERE buried_at IS NULL AND NOT ended),"
    f" (SELECT min(dies_at) FROM claims WHERE dies_at IS NOT NULL AND dies_at > {_AT})))",
    f"(EXISTS (SELECT 1 FROM sessions s WHERE {_DEAD_SESSIONS.replace('$2', '1')})"
    f" OR {_STALE}"
    f" OR EXISTS ({_AHEAD.format(now=_AT)})"
    f" OR EXISTS (SELECT 1 FROM claims WHERE dies_at IS NOT NULL AND dies_at <= {_AT})"
    f" OR EXISTS (SELECT 1 FROM cells WHERE expires_at IS NOT NULL AND expires_at <= {_AT}))",
)  # fmt: skip
ON_NAME = _question("on_name", "text, text", _rows("c.kind = $2 AND c.name = $3"))
# $2 to $3: the range of kinds (one kind: both are it). $4 the name itself, or NULL; $5 to $6 the names below.
UNDER = _question(
    "under", "text, text, text, text, text, int8",
    f"(SELECT coalesce(json_agg(found ORDER BY kind, name, ord, id), '[]') FROM (SELECT c.kind, c.name, c.ord, c.id,"
    f" {_ROW} AS found {LIVE_CLAIMS} AND c.kind >= $2 AND c.kind <= $3"
    " AND ($5 IS NULL OR c.name = $4 OR (c.name > $5 AND c.name < $6))"
    " ORDER BY c.kind, c.name, c.ord, c.id LIMIT $7) AS c)",
)  # fmt: skip
ROW_BY_ID = _question("row_by_id", "text", f"(SELECT json_build_array({_ROW}, {_SESSION}) {LIVE_CLAIMS} AND c.id = $2)")
CELL_NOW = _question(
    "cell_now", "text, text, int",
    "(SELECT json_build_array(encode(value, 'hex'), version, keep, expires_at) FROM cells"
    f" WHERE kind = $2 AND name = $3 AND (expires_at IS NULL OR expires_at > {_AT}))",
    "(SELECT last FROM counters WHERE bucket = $4)",
    "EXISTS (SELECT 1 FROM watches)",
)  # fmt: skip
COUNTER = _question("counter", "int", "(SELECT last FROM counters WHERE bucket = $2)")
WATCHED = _question("watched", "", "EXISTS (SELECT 1 FROM watches)")
WATCHERS = _question(
    "watchers", "",
    "(SELECT coalesce(json_agg(json_build_array(w.session, w.id, w.kind, w.prefix, w.given,"
    " (SELECT coalesce(max(number), w.given) FROM letters l WHERE l.session = w.session AND l.watch = w.id),"
    " (SELECT count(*) FROM letters l WHERE l.session = w.session AND l.watch = w.id)) ORDER BY w.session, w.id), '[]')"
    " FROM watches w JOIN sessions s ON s.id = w.session WHERE NOT s.ended)",
)  # fmt: skip
MAILBOX = _question(
    "mailbox", "text, text, int8",
    "(SELECT json_build_array(session, id, kind, prefix, given) FROM watches WHERE session = $2 AND id = $3)",
    "(SELECT coalesce(json_agg(json_build_array(number, event) ORDER BY number), '[]') FROM letters"
    " WHERE session = $2 AND watch = $3 AND number > $4)",
    "(SELECT coalesce(min(number), 0) FROM letters WHERE session = $2 AND watch = $3)",
)  # fmt: skip

# Locks on sessions

MARK_DEAD = Statement(
    "hf_mark_dead", "",
    "WITH dead AS (SELECT id FROM sessions WHERE buried_at IS NULL AND NOT ended"
    f" AND expires_at <= (SELECT {CLOCK}) ORDER BY id FOR UPDATE)"
    " UPDATE sessions s SET ended = true FROM dead WHERE s.id = dead.id",
)  # fmt: skip
# They would live on for as long as the clock needs to catch up, dead or not. Their rows are locked when the clock is
# read for their new end: it comes a full ttl after every heartbeat, so no holder gives up later than that.
BOUND_TIMES = Statement(
    "hf_bound_times", "",
    f"WITH t(now) AS MATERIALIZED (SELECT {CLOCK}),"
    f" ahead AS ({_AHEAD.format(now=_AT)} ORDER BY id FOR UPDATE),"
    f" bounded AS (UPDATE sessions s SET expires_at = {CLOCK} + s.ttl FROM ahead WHERE s.id = ahead.id RETURNING s.id)"
    f" UPDATE claims c SET dies_at = {CLOCK} + greatest(c.max_hold, s.ttl) FROM sessions s"
    f" WHERE EXISTS (SELECT FROM bounded) AND s.id = c.session AND c.dies_at > {_AT} + greatest(c.max_hold, s.ttl)",
)  # fmt: skip
LOCK_SESSION = Statement("hf_lock_session", "text", "SELECT FROM sessions WHERE id = $1 FOR NO KEY UPDATE")
END_SESSION = Statement(
    "hf_end_session", "text",
    f"UPDATE sessions SET ended = true, expires_at = least(expires_at, {CLOCK}) WHERE id = $1 AND NOT ended",
)  # fmt: skip

SECRET = "SELECT pg_catalog.to_json(value) FROM meta WHERE key = 'secret'"
"""What notices are signed with. It leaves the server only in the answer to this."""


def signed(notice: str) -> str:
    """SQL for a notice with its signature; `meta` has to be there as `m`."""
    text = f"convert_to(concat_ws('', m.value, {notice}, m.value), 'UTF8')"
    return f"concat_ws(' ', {notice}, encode(sha256({text}), 'hex'))"


# $1 session, $2 what happened and to which claim or watch.
NOTIFY = Statement(
    "hf_notify", "text, text",
    f"SELECT pg_notify(s.channel, {signed('$2')}) FROM sessions s, meta m WHERE s.id = $1 AND m.key = 'secret'",
)  # fmt: skip

# Changes

_ROW_TYPES = (
    "text, text, text, text, text, text, bool, int, bool, float8, text, text, int8, float8, int8, int, float8, text"
)
PUT_ROW = Statement(
    "hf_put_row", _ROW_TYPES,
    f"INSERT INTO claims ({_COLUMNS}) VALUES ({', '.join(f'${number}' for number in range(1, 19))})"
    " ON CONFLICT (id) DO UPDATE SET token = $15, slot = $16, since = $14, dies_at = $17, ticket = $18, ord = $13",
)  # fmt: skip
DROP_ROW = Statement("hf_drop_row", "text", "DELETE FROM claims WHERE id = $1")
PUT_SESSION = Statement(
    "hf_put_session", "text, float8, float8, text, text, int, text",
    "INSERT INTO sessions VALUES ($1, $2, $3, $4, $5, $6, $7)"
    " ON CONFLICT (id) DO UPDATE SET expires_at = $3 WHERE NOT sessions.ended",
)  # fmt: skip
DROP_TOMBSTONES = Statement("hf_drop_tombstones", "text", "DELETE FROM tombstones WHERE session = $1")
DROP_WATCHES = Statement("hf_drop_watches", "text", "DELETE FROM watches WHERE session = $1")
DROP_MAIL = Statement("hf_drop_mail", "text", "DELETE FROM letters WHERE session = $1")
DROP_SESSION = Statement(
    "hf_drop_session", "text, float8", f"DELETE FROM sessions WHERE id = $1 AND buried_at <= $2 - {FUNERAL}"
)
BURY_SESSION = Statement(
    "hf_bury_session", "text, float8",
    "UPDATE sessions SET buried_at = $2, ended = true WHERE id = $1 AND buried_at IS NULL",
)  # fmt: skip
PUT_COUNTER = Statement("hf_put_counter", "int, int8", "UPDATE counters SET last = $2 WHERE bucket = $1")
PUT_TOMBSTONE = Statement(
    "hf_put_tombstone", "text, text, text",
    "INSERT INTO tombstones (claim_id, session, reason) VALUES ($1, $2, $3)"
    " ON CONFLICT (session, claim_id) DO UPDATE SET reason = $3",
)  # fmt: skip
DROP_TOMBSTONE = Statement(
    "hf_drop_tombstone", "text, text", "DELETE FROM tombstones WHERE session = $1 AND claim_id = $2"
)
PUT_CELL = Statement(
    "hf_put_cell", "text, text, bytea, int8, float8, float8",
    "INSERT INTO cells VALUES ($1, $2, $3, $4, $5, $6)"
    " ON CONFLICT (kind, name) DO UPDATE SET value = $3, version = $4, keep = $5, expires_at = $6",
)  # fmt: skip
# Expired ones are dropped without their bucket's lock: one that was set anew meanwhile must stay.
DROP_CELL = Statement("hf_drop_cell", "text, text", "DELETE FROM cells WHERE kind = $1 AND name = $2")
DROP_DEAD_CELL = Statement(
    "hf_drop_dead_cell", "text, text, float8",
    "DELETE FROM cells WHERE kind = $1 AND name = $2 AND expires_at IS NOT NULL AND expires_at <= $3",
)  # fmt: skip
PUT_WATCH = Statement(
    "hf_put_watch", "text, text, text, text, int8",
    "INSERT INTO watches VALUES ($1, $2, $3, $4, $5)"
    " ON CONFLICT (session, id) DO UPDATE SET kind = $3, prefix = $4, given = $5",
)  # fmt: skip
DROP_WATCH = Statement("hf_drop_watch", "text, text", "DELETE FROM watches WHERE session = $1 AND id = $2")
DROP_WATCH_MAIL = Statement("hf_drop_watch_mail", "text, text", "DELETE FROM letters WHERE session = $1 AND watch = $2")
PUT_LETTER = Statement("hf_put_letter", "text, text, int8, text", "INSERT INTO letters VALUES ($1, $2, $3, $4)")
DROP_LETTERS = Statement(
    "hf_drop_letters", "text, text, int8", "DELETE FROM letters WHERE session = $1 AND watch = $2 AND number <= $3"
)
