"""Which claims a search for a deadlock has to see of those near one claim (see `questions.Line`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain

from holdfast.core import names
from holdfast.core.table import questions as ask
from holdfast.core.table.rivals import Rivals
from holdfast.core.table.rows import Row
from holdfast.core.table.waiting import Waiting

SCANNED = 4
"""Claims under a subtree that are passed for the cost of a look at one: nothing is asked about their sessions."""
OWNERS = 8
"""The same for owners that two sets may have in common."""


def near(
    rivals: Rivals, waiting: Waiting, question: ask.Line, alive: Callable[[Row], bool]
) -> tuple[Iterable[Row] | None, int]:
    """The claims, dead ones too, and how much it costs to find them. None if that is too much."""
    claim, home = question.claim, question.home
    kind, name = claim.kind, claim.name
    found: list[Iterable[Row]] = []
    cost = 0
    line = rivals.line(kind, name)
    if line is not None and claim.mode == "shared":
        found.append(line.queue.last_writer(question.before, alive))
    if question.again:
        return chain.from_iterable(found), cost
    if line is not None:
        found += [line.holders.owned_among(waiting.by_owner, home), waiting.besides(kind, name, home)]
        cost += min(len(line.holders), len(waiting.by_owner)) // OWNERS
        if line.covering and (claim.mode == "shared" or not claim.subtree):
            # What these wait for under the path, the claim does not wait for.
            found.append(line.covering.queue)
    for above in rivals.covering(kind, names.ancestors(name)):
        found += [above.holders.owned_among(waiting.by_owner, home), above.queue]
        cost += min(len(above.holders), len(waiting.by_owner)) // OWNERS
    if claim.subtree:
        cost += rivals.paths.count((kind, name)) // SCANNED
        if cost > question.looks:
            return None, 0
        few = claim.mode == "exclusive"
        found.append(row for row in rivals.paths.rows((kind, name)) if waiting.matters_below(row, home, few))
    return chain.from_iterable(found), cost
