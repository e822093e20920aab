"""Cells of an etcd, where something else happens at the same moment."""

from __future__ import annotations

import time
from typing import Any

import pytest

from holdfast.core.table.commands import CellValue
from holdfast.engines.etcd import cells
from holdfast.engines.etcd.messages import message
from holdfast.engines.etcd.token_base import read_base
from holdfast.engines.etcd.wire import LEASE_REVOKE, Request
from holdfast.runtime.blocking import run
from tests.engines.etcd.conftest import Connect
from tests.engines.etcd.test_seats import Recording


def test_a_cell_whose_lease_ends_before_it_is_written_is_written_under_another(connect: Connect) -> None:
    locks = connect()
    locks.cell("c").get()  # the base is known
    verbs: Any = locks._core.verbs
    until = verbs.io.now() + 5.0
    sent = Recording(verbs)
    leases: list[int] = []
    call = sent.port.call

    def note(request: Request, until: float) -> Any:
        answer = call(request, until)
        leases.append(getattr(answer.message, "ID", 0))
        return answer

    sent.port.call = note
    sent.before_second = lambda: call(Request(LEASE_REVOKE, message("LeaseRevokeRequest")(ID=leases[0])), until)

    written = run(verbs.cell_set(f"{locks._core.namespace}.cell", "c", b"v", None, 5.0, until))

    assert isinstance(written, CellValue)
    assert run(verbs.cell_get(f"{locks._core.namespace}.cell", "c", until)) == written


def test_who_reads_a_cell_while_the_session_is_opened_does_not_send_tokens_back(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = connect()
    tokens: list[int] = []

    class Clock:
        """Somebody takes a lock just when it was looked whether there is a session."""

        @staticmethod
        def now() -> float:
            locks.lock("k").acquire().release()
            return float("inf")

    async def slowly(*args: Any) -> Any:
        """And again while the base is read."""
        with locks.lock("k") as grant:
            tokens.append(grant.token)
        return await read_base(*args)

    monkeypatch.setattr(cells, "clock", Clock)
    monkeypatch.setattr(cells, "read_base", slowly)
    locks.cell("c").get()

    assert all(token > time.time() * 1_000_000 - 1e9 for token in tokens)
