"""An interrupt at any moment of a blocking call: no connection is used up, and nothing stays held."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from holdfast.core import urls
from holdfast.core.table import commands as cmd
from holdfast.core.table.rows import Session
from holdfast.engines.advisory.engine import AdvisoryEngine
from holdfast.engines.engine import nobody
from holdfast.engines.postgres.address import parse_address
from holdfast.engines.postgres.connections import Checked, Connections
from holdfast.engines.postgres.ledger import Ledger
from holdfast.engines.postgres.sockets import ThreadSockets
from holdfast.engines.postgres.table import PostgresTable
from holdfast.errors import EngineUnavailable
from holdfast.model import Claim, Granted, Place
from holdfast.runtime import clock
from holdfast.runtime.blocking import run
from tests.faults.injection import NEVER_RAN, Injected, Moments, count_moments

LONG = 5.0
STRIDE = 1 if os.environ.get("HOLDFAST_THOROUGH") else 7
"""Every so manieth moment gets its turn, another one for each error."""
pytestmark = [
    pytest.mark.usefixtures("garbage_is_collected"),
    pytest.mark.filterwarnings(NEVER_RAN),
    # To throw a generator away is an entry too, and an interrupt in there is only printed.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
Verbs = Callable[[str, Claim], Coroutine[Any, Any, Any]]
_numbers = itertools.count(1)


def new_claim(name: str = "k") -> Claim:
    return Claim(f"s-{next(_numbers)}", "s", "s/owner", "h.lock", name)


def moments_of(work: Callable[[], Any], first: int) -> range:
    return range(first, count_moments(work), STRIDE)


def interrupt(work: Callable[[], Any], at: int, error: type[BaseException]) -> tuple[str, BaseException | None]:
    """Where the interrupt came. Its traceback keeps the frames of the call alive."""
    fault = Moments(at, error)
    try:
        fault.run(work)
    except error as raised:
        return fault.where, raised
    except EngineUnavailable as unavailable:
        # A call may be told of the interrupt of what it called as of a connection that broke.
        return fault.where, unavailable
    return fault.where, None


@pytest.mark.parametrize(("first", "error"), [(0, KeyboardInterrupt), (3, Injected)])
@pytest.mark.parametrize("queued", [False, True])
def test_no_interrupt_uses_up_a_connection_of_the_lock_table(
    url: str, queued: bool, first: int, error: type[BaseException]
) -> None:
    connections = Connections(parse_address(urls.parse(url)), ThreadSockets(), 1, Checked())
    table = PostgresTable(connections, Ledger(), nobody)

    def ask(command: cmd.Command) -> Any:
        return run(table.call(command, clock.now() + LONG))

    run(table.call(cmd.Open(Session("s", 3600.0, 0.0)), clock.now() + 30))
    if queued:
        other = Claim("s-0", "s", "s/other", "h.lock", "k")
        assert isinstance(ask(cmd.Enter(other)), Granted)

    def work(claim: Claim) -> None:
        reply = ask(cmd.Enter(claim))
        assert isinstance(reply, Place if queued else Granted)
        ask(cmd.Leave(claim))

    for _ in range(3):
        work(new_claim())
    for at in moments_of(lambda: work(new_claim()), first):
        claim = new_claim()
        where, kept = interrupt(lambda claim=claim: work(claim), at, error)  # type: ignore[misc]

        started = time.monotonic()
        ask(cmd.Leave(claim, True))
        work(new_claim())
        assert time.monotonic() - started < LONG - 1, where
        assert len(ask(cmd.Inspect("h.lock", "k")).waiters) == 0, where
        del kept
    connections.close()


@pytest.mark.parametrize(("first", "error"), [(0, KeyboardInterrupt), (3, Injected)])
def test_no_interrupt_leaves_an_advisory_lock_held_or_uses_up_its_connections(
    server: Any, first: int, error: type[BaseException]
) -> None:
    engine, rival = (
        AdvisoryEngine(urls.parse(f"{server.url}?recipe=advisory&connections=2"), "holdfast") for _ in range(2)
    )
    verbs, others = engine.blocking(), rival.blocking()

    def until() -> float:
        return clock.now() + LONG

    def work(claim: Claim) -> None:
        assert isinstance(run(verbs.enter(claim, until())), Granted)
        run(verbs.release(claim, until()))

    work(new_claim())
    for at in moments_of(lambda: work(new_claim()), first):
        claim = new_claim()
        where, kept = interrupt(lambda claim=claim: work(claim), at, error)  # type: ignore[misc]

        started = time.monotonic()
        run(verbs.leave(claim, True, until()))
        mine = Claim(f"s-{next(_numbers)}", "s", "s/rival", "h.lock", "k")
        assert isinstance(run(others.enter(mine, until())), Granted), where
        run(others.release(mine, until()))
        for name in ("k", "j"):
            work(new_claim(name))
        assert time.monotonic() - started < LONG - 1, where
        del kept
    engine.close()
    rival.close()
