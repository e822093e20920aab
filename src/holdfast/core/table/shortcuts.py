"""The two steps that nearly all commands are, taken without questions: free locks, and locks that nobody waits for.

Many at a time, in order. What they do is what `lines.enter` and `lines.release` do one by one, and the dictionary with
their changes, by test. They stop before the first that is not plain, which is left to those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from holdfast.core.table.changes import DropRow, PutRow
from holdfast.core.table.dictionary import Dictionary
from holdfast.core.table.rows import Row
from holdfast.core.table.step import LAST_NEW
from holdfast.model import Claim

_new_row: Callable[[tuple[Any, ...]], Row] = partial(tuple.__new__, Row)
"""A row of all its fields, in half the time that their names take."""

Plain = tuple[str, str, Claim | None]
"""A session, the id of one of its claims, and that claim if it wants a lock; None if it gives one back."""


def carry_out(table: Dictionary, steps: Iterable[Plain], now: float, done: list[PutRow | DropRow]) -> None:
    """Grant what nobody has, and take out what nobody waits for, if nobody watches; `done` gets a change for each."""
    if table.watches:
        return
    rows, alone, lines, claims_of, by_session = table.rows, table.alone, table.lines, table.claims_of, table.by_session
    add, drop = table.directory.add, table.directory.drop
    number, counters = table.last(0), table.counters
    usage, account = table.usage, table.usage.total
    alive = None
    stones: Iterable[str] = ()
    for session, id_, claim in steps:
        if session is not alive:
            found = table.sessions.get(session)
            if found is None or found.expires_at <= now:
                break
            alive, stones, account = session, table.tombstones.get(session, ()), usage.of(found.user)
        if id_ in stones:
            break
        if claim is not None:
            key = (claim.kind, claim.name)
            if key in alone or key in lines or id_ in rows or "/" in claim.name or number >= LAST_NEW:
                break
            if claim.limit or claim.reentrant or claim.subtree:
                break
            number += 1
            counters[0] = number
            if claim.max_hold is None:
                row = _new_row((claim, number, now, number, None, None, ""))
            else:
                row = Row(claim, number, now, number, None, now + claim.max_hold)
                table.mortal.put(id_, now + claim.max_hold)
            mine = by_session.setdefault(session, {})
            rows[id_] = mine[id_] = alone[key] = row
            usage.count(claim, 1, account)
            claims_of[claim.owner] = claims_of.get(claim.owner, 0) + 1
            add(key)
            done.append(PutRow(row))
        else:
            held = rows.get(id_)
            if held is None or held.dies_at is not None:
                break
            claim = held.claim
            key = (claim.kind, claim.name)
            if key not in alone or "/" in claim.name or claim.limit or claim.subtree or claim.session != session:
                break
            del rows[id_], alone[key]
            usage.count(claim, -1, account)
            mine = by_session[session]
            if len(mine) == 1:
                del by_session[session]
            else:
                del mine[id_]
            owner = claim.owner
            left = claims_of[owner] - 1
            if left:
                claims_of[owner] = left
            else:
                del claims_of[owner]
            drop(key)
            done.append(DropRow(held))
