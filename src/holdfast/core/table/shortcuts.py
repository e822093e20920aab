"""The two steps that nearly all commands are, taken without questions: a free lock, and one that nobody waits for.

What they do is what `lines.enter` and `lines.release` do, by test. Whatever is not plain is left to those.
"""

from __future__ import annotations

from holdfast.core.table.changes import Change, DropRow, PutCounter, PutRow
from holdfast.core.table.dictionary import Dictionary
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
    row = Row(claim, number, now, number, None, None if claim.max_hold is None else now + claim.max_hold)
    changes: list[Change] = [PutCounter(0, number), PutRow(row)]
    table.counters[0] = number
    table.put_row(row)
    return Granted(number, None, claim.max_hold), changes


def give_back(table: Dictionary, row: Row, now: float) -> list[Change] | None:
    """Take out a claim that holds, alone on a name that nobody watches; None if there is more to it."""
    claim = row.claim
    session = table.sessions.get(claim.session)
    stones = table.tombstones.get(claim.session)
    if (
        row.dies_at is not None
        or claim.limit
        or claim.subtree
        or "/" in claim.name
        or (claim.kind, claim.name) not in table.alone
        or table.watches
        or session is None
        or session.expires_at <= now
        or (stones and claim.id in stones)
    ):
        return None
    gone = DropRow(row)
    table.drop_row(gone)
    return [gone]
