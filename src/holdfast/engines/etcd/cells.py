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
from holdfast.errors import EngineUnavailable
from holdfast.runtime import clock

if TYPE_CHECKING:
    from holdfast.engines.etcd.session import Known

BASE_LASTS = 10.0
"""For so many seconds somebody who only reads cells may give them the versions from before tokens were raised: lower
ones, which a write or a fence refuses."""


async def cell_get(known: Known, kind: str, name: str, until: float) -> CellValue:
    """The value and its version, which is a revision plus the base, so that it grows as tokens do.

    The base does not change while anybody has a session; a client that has none reads it again now and then.
    """
    ledger = known.ledger
    if not ledger.session.id and clock.now() > ledger.base_until:
        ledger.base, ledger.base_until = 0, clock.now() + BASE_LASTS
    if not ledger.base:
        ledger.base, ledger.base_revision, _ = await read_base(known, None, until)
    found = (await known.call(steps.look(known.keys.cell(kind, name)), until)).message.kvs
    return CellValue(found[0].value, ledger.base + found[0].mod_revision) if found else CellValue(None, 0)


async def cell_set(
    known: Known, kind: str, name: str, value: bytes | None, version: int | None, keep: float | None, until: float
) -> CellValue | Mismatch:
    """Write or delete if the version is the expected one. Not repeated: it would meet its own first try."""
    ledger, key = known.ledger, known.keys.cell(kind, name)
    lease = 0
    if keep is not None and value is not None:
        asked = message("LeaseGrantRequest")(TTL=ceil(keep))
        # One that nobody hears of ends by itself.
        lease = (await known.call(Request(LEASE_GRANT, asked), until)).message.ID
    while True:
        if not ledger.base:
            ledger.base, ledger.base_revision, _ = await read_base(known, None, until)
        expected = []
        if version is not None:
            expected = [steps.unchanged(key, version - ledger.base) if version else steps.absent(key)]
        answer = await known.call(
            steps.step(
                [steps.unchanged(known.keys.base, ledger.base_revision), *expected],
                [steps.get(key), steps.put(key, value, lease) if value is not None else steps.delete(key)],
                [steps.get(known.keys.base), steps.get(key)],
                repeats=False,
            ),
            until,
        )
        if answer.message.succeeded:
            former = steps.kvs(answer.message.responses[0])
            await _let_go(known, former[0].lease if former else 0, until)
            return CellValue(value, 0 if value is None else ledger.base + answer.revision)
        base, found = (steps.kvs(response) for response in answer.message.responses)
        if base and base[0].mod_revision == ledger.base_revision:
            await _let_go(known, lease, until)
            return Mismatch(ledger.base + found[0].mod_revision if found else 0)
        ledger.base = 0  # it was raised meanwhile


async def _let_go(known: Known, lease: int, until: float) -> None:
    """End a lease that no cell hangs on any more; one that cannot be ended now ends by itself."""
    if lease:
        with suppress(EngineUnavailable, LeaseGone):
            await known.call(Request(LEASE_REVOKE, message("LeaseRevokeRequest")(ID=lease)), until)
