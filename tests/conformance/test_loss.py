"""Loss is loud: what a holder learns, and when."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast import LockLost
from tests.conformance.apis import Front
from tests.conformance.stage import Stage, eventually

pytestmark = pytest.mark.any_connection


async def test_a_lost_grant_sets_its_event(stage: Stage, locks: Front, rival: Front) -> None:
    held = await locks.lock("k").acquire()
    lost = held.lost
    await stage.take_away("k", rival)

    await eventually(lost.is_set)
    assert not held.valid
    assert held.remaining == 0.0
    with pytest.raises(LockLost):
        held.check()


async def test_an_event_asked_for_after_the_loss_is_set(stage: Stage, locks: Front, rival: Front) -> None:
    held = await locks.lock("k").acquire()
    await stage.take_away("k", rival)
    await eventually(lambda: not held.valid)
    with pytest.raises(LockLost):
        held.check()

    assert held.lost.is_set()


async def test_on_lost_is_called_with_the_grant(stage: Stage, locks: Front, rival: Front) -> None:
    called: list[tuple[object, str]] = []
    lock = locks.lock("k", on_lost=lambda grant: called.append((grant, threading.current_thread().name)))
    held = await lock.acquire()
    await stage.take_away("k", rival)

    await eventually(lambda: bool(called))
    grant, thread = called[0]
    assert grant is held.target
    assert thread != "holdfast-keeper"


async def test_on_lost_may_use_the_client_that_lost_the_grant(stage: Stage, locks: Front, rival: Front) -> None:
    """Callbacks run outside of internal locks: what they ask for does not hang."""
    called: list[float] = []
    held = await locks.lock("k", on_lost=lambda grant: called.append(grant.remaining)).acquire()
    await stage.take_away("k", rival)

    await eventually(lambda: called == [0.0])
    again = await locks.lock("k").acquire(wait=5.0)
    assert again.token > held.token


async def test_on_lost_is_not_called_for_a_release(stage: Stage, locks: Front, rival: Front) -> None:
    called: list[str] = []
    for name in ("released", "broken"):
        held = await locks.lock(name, on_lost=lambda grant: called.append(grant.name)).acquire()
        if name == "released":
            await held.release()
    await stage.take_away("broken", rival)

    await eventually(lambda: called == ["broken"])


@pytest.mark.by_turns
async def test_a_session_that_went_without_heartbeats_has_lost_everything(stage: Stage, rival: Front) -> None:
    quiet = await stage.client(ttl=0.5)
    held = await quiet.lock("k").acquire()
    stage.silence(quiet)

    await eventually(lambda: not held.valid)
    with pytest.raises(LockLost):
        held.check()
    await eventually(held.lost.is_set)


@pytest.mark.by_turns
async def test_the_holder_gives_up_before_the_engine_does_if_it_is_leased(stage: Stage, rival: Front) -> None:
    quiet = await stage.client(ttl=0.5 if rival.guarantees.leased else 30.0)
    held = await quiet.lock("k").acquire()
    stage.silence(quiet)
    seen: list[bool] = []
    # Asked the moment the other one has it, in whatever thread that is.
    taken = await rival.actor.do(stage.api.function(*taking(rival, lambda: seen.append(held.valid))))

    # Without a lease the engine may let go before the holder knows, or after: only the fence protects.
    assert seen == [False] or not rival.guarantees.leased
    assert taken.token > held.token
    await rival.actor.do(taken.release)


def taking(client: Front, then: Callable[[], None]) -> tuple[Callable[[], Awaitable[Any]], Callable[[], Any]]:
    """Wait for the lock, and look around as soon as it is there: for tasks, and for threads."""
    lock = client.lock("k").target

    async def task() -> Any:
        grant = await lock.acquire(wait=10.0)
        then()
        return grant

    def thread() -> Any:
        grant = lock.acquire(wait=10.0)
        then()
        return grant

    return task, thread


async def test_a_loss_that_the_release_finds_is_loud_too(stage: Stage, rival: Front) -> None:
    """The heartbeat would have told later; whoever finds out first tells everybody."""
    quiet = await stage.client()
    called: list[str] = []
    held = await quiet.lock("k", on_lost=lambda grant: called.append(grant.name)).acquire()
    stage.silence(quiet)
    await stage.take_away("k", rival, force=True)

    with pytest.raises(LockLost):
        await held.release()
    await eventually(held.lost.is_set)
    await eventually(lambda: called == ["k"])


async def test_a_client_goes_on_under_a_new_session_after_a_loss(stage: Stage, rival: Front) -> None:
    """What was lost stays lost; what is asked for anew is granted anew."""
    held = await rival.lock("k").acquire()
    await stage.take_away("k", rival)
    await eventually(lambda: not held.valid)
    again = await rival.lock("k").acquire(wait=5.0)

    assert again.valid
    assert not held.valid
    with pytest.raises(LockLost):
        await held.release()
    assert again.valid


@pytest.mark.by_turns
async def test_a_heartbeat_keeps_what_is_held_past_the_ttl(stage: Stage, rival: Front) -> None:
    steady = await stage.client(ttl=1.0)
    held = [await steady.lock(f"k{number}").acquire() for number in range(3)]
    first: float = held[0].remaining
    renewed: int = 0

    def beaten() -> bool:
        nonlocal first, renewed
        now: float = held[0].remaining
        renewed += now > first
        first = now
        return renewed >= 4

    await eventually(beaten)
    assert all(grant.valid for grant in held)
    assert await rival.lock("k1").try_acquire() is None
