"""The two steps that nearly all commands are, taken without questions: a free lock, and one that nobody waits for.

What they do is what `lines.enter` and `lines.release` do, and the dictionary with their changes, by test. Whatever is
not plain is left to those.
"""

from __future__ import annotations

from holdfast.core.table.changes import Change, DropRow, PutCounter, PutRow
from holdfast.core.table.dictionary import Dictionary
from holdfast.core.table.directory import Name
from holdfast.core.table.rows import Row
from holdfast.model import MAX_TOKEN, Claim, Granted


def take(table: Dictionary, claim: Claim, now: float) -> tuple[Granted, list[Change]] | None:
    """Grant a newcomer a lock that nobody has and nobody watches; None if there is more to it."""
    name = claim.name
    key = (claim.kind, name)
    if (
        claim.limit
        or claim.reentrant
        or claim.subtree
        or "/" in name
        or key in table.alone
        or key in table.lines
        or claim.id in table.rows
        or table.watches
    ):
        return None
    session = table.sessions.get(claim.session)
    stones = table.tombstones.get(claim.session)
    number = table.last(0) + 1
    if session is None or session.expires_at <= now or (stones and claim.id in stones) or number > MAX_TOKEN:
        return None
    hold = claim.max_hold
    row = Row(claim, number, now, number, None, None if hold is None else now + hold)
    table.counters[0] = number
    _put(table, key, row)
    return Granted(number, None, hold), [PutCounter(0, number), PutRow(row)]


def give_back(table: Dictionary, row: Row, now: float) -> list[Change] | None:
    """Take out a claim that holds, alone on a name that nobody watches; None if there is more to it."""
    claim = row.claim
    name = claim.name
    key = (claim.kind, name)
    session = table.sessions.get(claim.session)
    stones = table.tombstones.get(claim.session)
    if (
        row.dies_at is not None
        or claim.limit
        or claim.subtree
        or "/" in name
        or key not in table.alone
        or table.watches
        or session is None
        or session.expires_at <= now
        or (stones and claim.id in stones)
    ):
        return None
    _drop(table, key, row)
    return [DropRow(row)]


def _put(table: Dictionary, key: Name, row: Row) -> None:
    """`put_row` for a new claim that holds alone a name that is no path."""
    claim = row.claim
    id_, owner, session = claim.id, claim.owner, claim.session
    table.claims_of[owner] = table.claims_of.get(owner, 0) + 1
    mine = table.by_session.get(session)
    if mine is None:
        mine = table.by_session[session] = {}
    table.rows[id_] = mine[id_] = table.alone[key] = row
    table.directory.add(key)
    if row.dies_at is not None:
        table.mortal.put(id_, row.dies_at)


def _drop(table: Dictionary, key: Name, row: Row) -> None:
    """`drop_row` for a claim like that, if it has no end of its own."""
    claim = row.claim
    id_, owner, session = claim.id, claim.owner, claim.session
    del table.rows[id_], table.alone[key]
    table.directory.drop(key)
    mine = table.by_session[session]
    if len(mine) == 1:
        del table.by_session[session]
    else:
        del mine[id_]
    left = table.claims_of[owner] - 1
    if left:
        table.claims_of[owner] = left
    else:
        del table.claims_of[owner]
