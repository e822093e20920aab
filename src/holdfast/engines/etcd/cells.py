"""Cells: values that are compared by their revision."""

from __future__ import annotations

from contextlib import suppress
from math import ceil
from typing import TYPE_CHECKING

from holdfast.core.table.commands import CellValue, Mismatch
from holdfast.engines.etcd import steps
from holdfast.engines.etcd.messages import message
from holdfast.engines.etcd.token_base import read_base
from holdfast.engines.etcd.wire import LEASE_GRANT, LEASE_REVOKE, LeaseGone, Request
from holdfast.errors import EngineFailure
from holdfast.runtime import clock

if TYPE_CHECKING:
    from holdfast.engines.etcd.outcome import VerbCall
    from holdfast.engines.etcd.session import Known

BASE_LASTS = 10.0
"""For so many seconds somebody who only reads cells may give them the versions from before tokens were raised: lower
ones, which a write or a fence refuses."""


async def cell_get(known: Known, kind: str, name: str, verb: VerbCall) -> CellValue:
    """The value and its version, which is a revision plus the base, so that it grows as tokens do.

    The base does not change while anybody has a session; a client that has none reads it again now and then.
    """
    ledger = known.ledger
    base = ledger.base
    if not base or (not ledger.session.id and clock.now() > ledger.base_until):
        base, _ = await _read_base(known, verb)
    found = (await known.call(steps.look(known.keys.cell(kind, name)), verb)).message.kvs
    return CellValue(found[0].value, base + found[0].mod_revision) if found else CellValue(None, 0)


async def _read_base(known: Known, verb: VerbCall) -> tuple[int, int]:
    base, revision, _ = await read_base(known, None, verb)
    known.ledger.learn_base(base, revision, clock.now() + BASE_LASTS)
    return base, revision


async def cell_set(
    known: Known, kind: str, name: str, value: bytes | None, version: int | None, keep: float | None, verb: VerbCall
) -> CellValue | Mismatch:
    """Write or delete if the version is the expected one. Not repeated: it would meet its own first try."""
    ledger, key = known.ledger, known.keys.cell(kind, name)
    base, base_revision = ledger.base, ledger.base_revision
    lease = 0
    while True:
        if keep is not None and value is not None and not lease:
            asked = message("LeaseGrantRequest")(TTL=ceil(keep))
            # One that nobody hears of ends by itself.
            lease = (await known.call(Request(LEASE_GRANT, asked, changes=False), verb)).message.ID
        if not base:
            base, base_revision = await _read_base(known, verb)
        expected = []
        if version is not None:
            expected = [steps.unchanged(key, version - base) if version else steps.absent(key)]
        request = steps.step(
            [steps.unchanged(known.keys.base, base_revision), *expected],
            [steps.get(key), steps.put(key, value, lease) if value is not None else steps.delete(key)],
            [steps.get(known.keys.base), steps.get(key)],
            repeats=False,
        )
        try:
            answer = await known.call(request, verb)
        except LeaseGone:
            lease = 0  # it took too long, and nothing was written: again, under a new one
            continue
        except EngineFailure as error:
            if verb.settled and version is not None:
                # The answer came, so the request is applied by now or never will be.
                found = (await known.call(steps.look(key), verb)).message.kvs
                if (found[0].mod_revision if found else 0) == (version - base if version else 0):
                    raise verb.refused(error) from error
            raise
        if answer.message.succeeded:
            former = steps.kvs(answer.message.responses[0])
            await _let_go(known, former[0].lease if former else 0, verb)
            return CellValue(value, 0 if value is None else base + answer.revision)
        bases, found = (steps.kvs(response) for response in answer.message.responses)
        if bases and bases[0].mod_revision == base_revision:
            await _let_go(known, lease, verb)
            return Mismatch(base + found[0].mod_revision if found else 0)
        base = 0  # it was raised meanwhile


async def _let_go(known: Known, lease: int, verb: VerbCall) -> None:
    """End a lease that no cell hangs on any more; one that cannot be ended now ends by itself."""
    if lease:
        with suppress(EngineFailure, LeaseGone):
            await known.call(Request(LEASE_REVOKE, message("LeaseRevokeRequest")(ID=lease)), verb)
