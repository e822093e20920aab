"""Many waiters of one client on one lock: only the first asks the nodes, and none is overtaken or forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from holdfast import NotAcquired, aio
from holdfast.core import urls
from holdfast.engines.redlock import waiters as redlock_waiters
from holdfast.engines.redlock.engine import RedlockEngine
from holdfast.engines.redlock.nodes import Answers, NoAnswer, Round
from holdfast.engines.redlock.verbs import UNANSWERED
from holdfast.model import Gone, Granted, Place
from holdfast.runtime.blocking import run
from tests.conformance.apis import Front
from tests.conformance.stage import Stage, eventually
from tests.engines.redlock.conftest import Nodes
from tests.engines.redlock.test_ghosts import Interrupted, claim, session, until
from tests.servers.process import wait_until

CROWD = 60
Tasks = Callable[[], Any]


@pytest.fixture
async def tasks(nodes: Nodes) -> AsyncIterator[Tasks]:
    """Makes clients, which are closed at the end."""
    async with AsyncExitStack() as stack:

        async def connect() -> Any:
            client = await stack.enter_async_context(aio.connect(nodes.url, ttl=10.0))
            async with client.lock("warm-up"):
                return client

        yield connect


async def waiting(locks: Any, number: int) -> None:
    """Until so many calls of a client wait."""
    await eventually(lambda: len(locks._core.waiting) == number)


def count_enters(locks: Any) -> list[str]:
    """The requests for a lock that are sent to the nodes from now on."""
    sent: list[str] = []
    verbs = locks._core.verbs
    ask = verbs._round

    async def counted(name: str, *args: Any, **options: Any) -> Any:
        if name == "enter":
            sent.append(name)
        return await ask(name, *args, **options)

    verbs._round = counted
    return sent


async def test_waiters_that_time_out_at_once_cost_the_nodes_what_one_costs(
    stage: Stage, locks: Front, rival: Front, nodes: Nodes
) -> None:
    held = await rival.lock("k").acquire()
    before = nodes.scripts_run(0)
    waiters = [stage.another(locks) for _ in range(CROWD)]
    missed = await asyncio.gather(*(waiter.lock("k").acquire(wait=1.0) for waiter in waiters), return_exceptions=True)

    assert [type(each) for each in missed] == [NotAcquired] * CROWD
    # One waiter tries and gives back every 0.15 s or so; that many would have run thousands.
    assert nodes.scripts_run(0) - before < 4 * CROWD
    held.check()


async def test_waiters_for_what_their_own_client_holds_send_nothing(tasks: Tasks) -> None:
    locks = await tasks()
    held = await locks.lock("k").acquire()
    sent = count_enters(locks)
    missed = await asyncio.gather(*(locks.lock("k").acquire(wait=0.5) for _ in range(CROWD)), return_exceptions=True)
    assert await asyncio.create_task(locks.lock("k").try_acquire()) is None

    assert [type(each) for each in missed] == [NotAcquired] * CROWD
    assert sent == []
    await held.release()
    await (await locks.lock("k").acquire(wait=10.0)).release()


async def test_waiters_of_one_client_are_granted_in_the_order_in_which_they_came(tasks: Tasks) -> None:
    locks, rival = await tasks(), await tasks()
    held = await rival.lock("k").acquire()
    order: list[int] = []

    async def once(number: int) -> None:
        async with locks.lock("k"):
            order.append(number)

    crowd = []
    for number in range(20):
        crowd.append(asyncio.create_task(once(number)))
        await waiting(locks, number + 1)
    await held.release()
    await asyncio.gather(*crowd)

    assert order == list(range(20))


@pytest.mark.parametrize("left", [[0], [1], [0, 1], [0, 1, 2], [1, 3], [0, 2, 4]])
async def test_a_waiter_that_is_cancelled_keeps_none_behind_it_waiting(tasks: Tasks, left: list[int]) -> None:
    locks, rival = await tasks(), await tasks()
    held = await rival.lock("k").acquire()
    order: list[int] = []

    async def once(number: int) -> None:
        async with locks.lock("k"):
            order.append(number)

    crowd = []
    for number in range(5):
        crowd.append(asyncio.create_task(once(number)))
        await waiting(locks, number + 1)
    for number in left:
        crowd[number].cancel()
    await held.release()
    ended = await asyncio.gather(*crowd, return_exceptions=True)

    assert [isinstance(each, asyncio.CancelledError) for each in ended] == [number in left for number in range(5)]
    assert order == [number for number in range(5) if number not in left]
    assert not locks._core.engine.ledger.turns._names


async def test_waiters_are_served_although_the_holder_hangs_beyond_its_max_hold(tasks: Tasks) -> None:
    """The nodes end the hold by themselves, while the holder's callback does not let go."""
    locks = await tasks()
    go_on = asyncio.Event()

    async def hang(*_: object) -> None:
        await go_on.wait()

    await locks.lock("k", max_hold=1.0, on_lost=hang).acquire()
    after = await asyncio.create_task(locks.lock("k").acquire(wait=20.0))
    await after.release()
    go_on.set()


def nobody_answers(_: Round, answers: Answers) -> Answers:
    return [*answers[:-1], NoAnswer("no answer in time", True)]


@pytest.fixture
def three(nodes: Nodes) -> Any:
    """The engine of a client whose first of two waiters was given up, because a node did not answer."""
    engine, rival = [RedlockEngine(urls.parse(nodes.url), "holdfast") for _ in range(2)]
    verbs, other = engine.blocking(), rival.blocking()
    port = Interrupted(verbs.io.port)  # type: ignore[attr-defined]
    verbs.io.port = port  # type: ignore[attr-defined]
    run(verbs.open_session(session("mine"), until()))
    run(other.open_session(session("other"), until()))
    assert isinstance(run(other.enter(claim("other"), until())), Granted)
    port.then["redlock_enter"] = nobody_answers
    assert run(verbs.enter(claim("mine", 1), until())) == Gone(UNANSWERED)
    run(other.release(claim("other"), until()))
    yield engine, verbs
    for each in (engine, rival):
        each.close()


def of_another(number: int) -> Any:
    theirs = claim("mine", number)
    return type(theirs)(f"mine-{number}", "mine", "mine/2", *[getattr(theirs, name) for name in REST])


REST = ("kind", "name", "mode", "subtree", "limit", "waits")


def test_a_waiter_whose_claim_was_given_up_keeps_its_turn_for_its_next_claim(
    three: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, verbs = three

    assert run(verbs.enter(of_another(2), until())) == Place(1)
    assert isinstance(run(verbs.enter(claim("mine", 3), until())), Granted)


def test_a_turn_whose_owner_does_not_come_again_goes_to_the_next(three: Any) -> None:
    """An interrupt has ended the call between its two claims. Nothing else tells that."""
    engine, verbs = three
    due: dict[str, float] = engine.bell._due
    assert run(verbs.enter(of_another(2), until())) == Place(1)

    assert due["mine-2"] <= verbs.io.now() + redlock_waiters.KEPT, "it is woken when the turn is its own"
    wait_until(lambda: isinstance(run(verbs.look(of_another(2), until())), Granted), 5.0, "the next one's turn")


def test_a_waiter_is_served_although_nobody_said_that_the_session_of_the_holder_is_over(nodes: Nodes) -> None:
    """Without heartbeats the hold ends on the nodes. A client that believed in it would wait for itself for ever."""
    engine = RedlockEngine(urls.parse(nodes.url), "holdfast")
    verbs = engine.blocking()
    run(verbs.open_session(session("mine")._replace(ttl=1.0), until()))
    assert isinstance(run(verbs.enter(claim("mine", 1), until())), Granted)
    assert run(verbs.enter(of_another(2), until())) == Place(1)

    wait_until(lambda: isinstance(run(verbs.look(of_another(2), until())), Granted), 10.0, "the end of the hold")
    engine.close()
