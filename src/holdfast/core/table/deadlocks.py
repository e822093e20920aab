"""Looking for a deadlock before a claim is allowed to wait."""

from __future__ import annotations

from dataclasses import replace

from holdfast.core.table import questions as ask
from holdfast.core.table.commands import TooEntangled
from holdfast.core.table.rows import Row, Session
from holdfast.core.table.step import Asking, Step
from holdfast.core.waitgraph import Knot, Waiting, find_cycle
from holdfast.model import Link

COST_OF_A_CLAIM = 10
"""What the search for a cycle costs per claim that it looks at, in the unit of a question."""


def search(step: Step, newcomer: Row, given: tuple[Row, str] | None = None) -> Asking[tuple[Link, ...] | TooEntangled]:
    """The cycle that this claim would close by waiting; empty if there is none.

    An owner that has nothing else cannot be waited for, so nothing is loaded for it. `given`
    supposes that a grant already belongs to another owner.
    """
    claim = newcomer.claim
    busy: bool = given is not None or (yield ask.Busy(claim.owner, claim.id))
    if not busy:
        return ()
    rows: dict[str, Row] = {newcomer.id: newcomer}
    # What else its owner waits for does not matter: nobody waits for ever so far, so all of that comes if this does.
    owners: set[str] = {claim.owner} if given is None else set()
    lines: set[tuple[str, str, str, bool]] = set()
    frontier, most = [newcomer], step.bounds.search
    looked_at = step.looked_at
    while frontier:
        met = {row.claim.owner for row in frontier}
        for row in frontier:
            line = (row.claim.kind, row.claim.name, row.claim.mode, row.claim.subtree)
            again = line in lines
            if not again or (row.claim.mode == "shared" and not step.whole_lines):
                lines.add(line)
                looks = step.bounds.scan - (step.looked_at - looked_at)
                near: tuple[Row, ...] | None = None
                if looks >= 0:
                    near = yield ask.Line(row.claim, claim.owner, row.order, most, looks, again)
                if near is None or len(near) + len(rows) > most:
                    return TooEntangled(most)
                rows.update((found.id, found) for found in near)
                met.update(found.claim.owner for found in near)
        if given is not None:
            row, owner = given
            rows[row.id] = row._replace(claim=replace(row.claim, owner=owner))
            met.add(owner)
        new_owners = tuple(sorted(met - owners))
        owners.update(new_owners)
        waiting: tuple[Row, ...] | None = (yield ask.WaitingOf(new_owners, most)) if new_owners else ()
        if waiting is None or len(waiting) + len(rows) > most:
            return TooEntangled(most)
        rows.update((found.id, found) for found in waiting)
        frontier = list(waiting)
        step.cost = COST_OF_A_CLAIM * len(rows)
    cycle = find_cycle([Waiting(row.claim, row.order, row.token is not None) for row in rows.values()], newcomer.id)
    return (yield from describe(cycle))


def describe(cycle: list[Knot]) -> Asking[tuple[Link, ...]]:
    """Name everybody in a cycle: each has what the one before it waits for."""
    if not cycle:
        return ()
    sessions: dict[str, Session] = yield ask.Sessions(tuple({knot.waits.session for knot in cycle}))
    links = []
    for claim, has in cycle:
        session = sessions.get(claim.session) or Session(claim.session, 0, 0)
        links.append(Link(claim.owner, session.app, session.host, session.pid, claim.thread, has.name, claim.name))
    return tuple(links)
