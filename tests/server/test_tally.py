"""What is counted is counted once."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.server.test_http import metrics
from tests.servers.lock_server import LockServer, Wire


@pytest.mark.parametrize("again", [(), ("FORCE",)])
def test_a_grant_that_is_broken_again_was_broken_once(
    shared_server: LockServer, wire: Wire, again: tuple[str, ...]
) -> None:
    session, name = wire.open(), uuid4().hex
    before = metrics(shared_server)["holdfast_broken_total"]
    wire("HF.ACQUIRE", f"{session}-1", name, "SHARED")
    assert wire("HF.BREAK", name) == [f"{session}-1"]
    wire("HF.ACQUIRE", f"{session}-2", name, "SHARED", "OWNER", "another")

    assert len(wire("HF.BREAK", name, *again)) == 2

    assert metrics(shared_server)["holdfast_broken_total"] == before + 2
