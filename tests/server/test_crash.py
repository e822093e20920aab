"""A server that is killed at any moment: no answer that it ever gave is taken back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest

from holdfast.runtime import clock
from tests.faults.children import eventually
from tests.server.crowd import Ledger, busy, compare
from tests.servers.lock_server import LockServer

KILLS = int(os.environ.get("HOLDFAST_SERVER_KILLS", "10"))
CLIENTS = 6
LONGEST = 8.0
# Folded every few dozen answers, so that servers die in the middle of that too.
STORE = "sqlite:///locks.db?log_kib=16&ballast_mib=1"


def kill_under_load(server: LockServer, ledger: Ledger, round_: int) -> None:
    """Let clients work, and kill the server after some answer; on a slow machine, at some moment."""
    after = ledger.answers + Random(round_).randint(5, 400)
    long_enough = clock.now() + LONGEST
    work = busy(server, ledger, CLIENTS, round_)
    all_ended = next(work)
    eventually(lambda: ledger.answers >= after or all_ended() or clock.now() > long_enough, "nothing happened")
    server.kill()
    assert next(work, None) is None


@contextmanager
def serving(store: str) -> Iterator[LockServer]:
    with LockServer(store=store) as server:
        yield server


@pytest.mark.timeout(60 + 30 * KILLS)
def test_no_answer_is_ever_taken_back_by_a_kill() -> None:
    ledger = Ledger()
    with serving(STORE) as server:
        for round_ in range(KILLS):
            kill_under_load(server, ledger, round_)
            server.start()
            assert compare(server, ledger) == [], f"after kill {round_ + 1}"
    assert ledger.answers > 5 * KILLS


def test_a_server_that_forgets_is_found_out() -> None:
    """The control: the same, on a store that keeps nothing."""
    ledger = Ledger()
    with serving("memory://") as server:
        kill_under_load(server, ledger, 1)
        server.start()
        assert any("was answered as open, and is gone" in problem for problem in compare(server, ledger))
