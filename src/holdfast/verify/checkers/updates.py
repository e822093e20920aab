"""No update is lost: what was acknowledged is there, and what was refused is not.

A protected set is read, added to and written back under a lock. Each `read` that began after a
write had been acknowledged has to show its element. A write of unknown outcome may show or not,
but once it was seen it stays, like any other.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator

from holdfast.verify.finding import Finding, Violation, around, found, violation
from holdfast.verify.history import GRANTING, Call, History

CLAIM = "updates"
UNFENCED = "unfenced updates"


def check(history: History) -> Finding:
    """Look for fenced updates that are lost."""
    return _check(history, CLAIM, fenced=True)


def check_unfenced(history: History) -> Finding:
    """The same for resources without a fence: nobody promises it if holders pause."""
    return _check(history, UNFENCED, fenced=False)


def _check(history: History, claim: str, fenced: bool) -> Finding:
    writes: dict[str, list[Call]] = defaultdict(list)
    reads: dict[str, list[Call]] = defaultdict(list)
    protected = {call.name for call in history.calls if call.op == "write" and call.fenced}
    for call in history.calls:
        if (call.name in protected) != fenced:
            continue
        if call.op == "write":
            writes[call.name].append(call)
        elif call.op == "read" and call.ok and isinstance(call.value, list):
            reads[call.name].append(call)
    violations = [each for name in writes for each in _wrong(history, claim, writes[name], reads[name])]
    checked = sum(len(calls) for name, calls in writes.items() if reads[name])
    why = f"nothing was written {'with' if fenced else 'without'} a fence, or it was never read again"
    return found(claim, checked, violations, why)


def _wrong(history: History, claim: str, writes: list[Call], reads: list[Call]) -> Iterator[Violation]:
    """Go through the reads in time; `due` is what each of them has to show, and who says so."""
    refused = {str(call.value): call for call in writes if call.outcome == "failed"}
    unknown = {str(call.value) for call in writes if call.outcome == "unknown"}
    coming = [(call.end, call.id, str(call.value), call) for call in writes if call.ok and call.end is not None]
    heapq.heapify(coming)
    due: dict[str, Call] = {}
    told: set[str] = set()
    for read in reads:
        while coming and coming[0][0] < read.start:
            _, _, element, witness = heapq.heappop(coming)
            due.setdefault(element, witness)
        shown = {str(element) for element in read.value}
        for element in due.keys() - shown - told:
            yield _missing(history, claim, element, due[element], read, writes)
        for element in (shown & refused.keys()) - told:
            call = refused[element]
            summary = f"{read.name!r} shows {element}, which {call.process} was told is refused"
            yield violation(claim, summary, [call, read], read.start)
        told |= (due.keys() - shown) | (shown & refused.keys())
        # It was done, then. A read that begins after this one has ended has to show it too.
        for element in shown & unknown:
            unknown.discard(element)
            if read.end is not None:
                heapq.heappush(coming, (read.end, read.id, element, read))


def _missing(history: History, claim: str, element: str, witness: Call, read: Call, writes: list[Call]) -> Violation:
    """The story of a lost element: who wrote or saw it, who wrote over it, who missed it."""
    since, until = witness.end or witness.start, read.end or read.start
    # The first write after it is the one that did not have it, unless a write is missing from the history.
    over = next(
        (
            call
            for call in sorted(writes, key=lambda each: each.end or 0.0)
            if call.ok and since < (call.end or 0.0) <= until
        ),
        None,
    )
    by = f"; {over.process} (token {over.token}) wrote over it" if over is not None else ""
    records: list[Call | None] = [witness, over, read]
    claims = {call.claim for call in (witness, over) if call is not None and call.claim}
    grants = [call for call in history.calls if call.op in GRANTING and call.ok and call.claim in claims]
    begun = min((call.start for call in grants), default=witness.start)
    processes = [call.process for call in (witness, over) if call is not None]
    who = (
        f"update {element} of {witness.process}"
        if witness.op == "write"
        else f"update {element}, seen by {witness.process},"
    )
    summary = f"the {who} to {read.name!r} is lost{by}"
    equal = over is not None and over.claim != witness.claim and over.token is not None and over.token == witness.token
    faults = around(history, processes, begun, since)
    return violation(claim, summary, [*records, *grants, *faults], read.start, equal_tokens=equal)
