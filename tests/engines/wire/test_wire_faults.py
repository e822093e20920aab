"""What becomes of a call when the wire is cut, stalls, or loses the reply: never a wrong answer, never a leak."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from holdfast import EngineUnavailable
from holdfast.locks import acquire
from holdfast.verify.proxy import Proxy, Way
from tests.conformance.apis import Front
from tests.conformance.stage import Stage, eventually, soon


async def client_behind(stage: Stage, ttl: float = 10.0) -> Front:
    """A client that has its session and a connection already."""
    client = await stage.client(ttl=ttl)
    await (await client.lock("warm").acquire()).release()
    return client


def way(proxy: Proxy, direction: str) -> Way:
    found: Way = getattr(proxy, direction)
    return found


@pytest.mark.parametrize("direction", ["requests", "replies"])
async def test_an_acquire_that_is_cut_at_any_byte_is_granted_once(
    far_stage: Stage, rival: Front, proxy: Proxy, direction: str
) -> None:
    client = await client_behind(far_stage)
    tokens = [0]
    for byte in [*range(0, 40, 3), *range(40, 360, 23)] if direction == "requests" else range(0, 60, 4):
        way(proxy, direction).set("cut", after=byte)
        held = await client.lock("k").acquire(wait=5.0)
        proxy.heal()
        info = await rival.inspect("k")
        assert [holder.token for holder in info.holders] == [held.token]
        assert info.waiters == ()
        assert held.token > tokens[-1]
        tokens.append(held.token)
        await held.release()

    assert await rival.lock("k").try_acquire() is not None


@pytest.mark.parametrize("direction", ["requests", "replies"])
async def test_a_release_that_is_cut_at_any_byte_is_done_and_says_so(
    far_stage: Stage, rival: Front, proxy: Proxy, direction: str
) -> None:
    client = await client_behind(far_stage)
    for byte in [*range(0, 40, 3), *range(40, 220, 23)] if direction == "requests" else range(14):
        held = await client.lock("k").acquire()
        way(proxy, direction).set("cut", after=byte)
        await held.release()
        proxy.heal()

        theirs = await rival.lock("k").try_acquire()
        assert theirs is not None
        await theirs.release()


@pytest.mark.parametrize("direction", ["requests", "replies"])
async def test_a_renewal_that_is_cut_at_any_byte_keeps_the_lock(far_stage: Stage, proxy: Proxy, direction: str) -> None:
    client = await client_behind(far_stage)
    held = await client.lock("k").acquire()
    for byte in [*range(0, 40, 3), *range(40, 200, 23)] if direction == "requests" else range(0, 60, 4):
        way(proxy, direction).set("cut", after=byte)
        await held.renew()
        proxy.heal()

    held.check()
    await held.release()


@pytest.mark.by_turns
async def test_an_acquire_whose_reply_never_comes_is_unknown_and_leaves_nothing(
    far_stage: Stage, rival: Front, proxy: Proxy
) -> None:
    client = await client_behind(far_stage)
    proxy.replies.set("drop")
    started = time.monotonic()
    with pytest.raises(EngineUnavailable) as error:
        await client.lock("k").acquire(wait=0.2)

    assert error.value.outcome == "unknown"
    assert time.monotonic() - started < 0.2 + 1.5
    proxy.heal()
    await eventually(free(rival, "k"))


@pytest.mark.by_turns
async def test_an_acquire_that_arrives_after_it_was_withdrawn_is_not_granted(
    far_stage: Stage, rival: Front, proxy: Proxy
) -> None:
    client = await client_behind(far_stage)
    proxy.requests.set("stall")
    with pytest.raises(EngineUnavailable) as error:
        await client.lock("k").acquire(wait=0.2)
    assert error.value.outcome == "unknown"
    before = proxy.requests.passed
    proxy.heal()

    # The stalled request goes through now, beside the withdrawal that the keeper repeats.
    await eventually(lambda: proxy.requests.passed > before + 300)
    await eventually(free(rival, "k"))
    await eventually(lambda: not client.target._core.keeper.withdrawals)
    assert await rival.lock("k").try_acquire() is not None


def free(rival: Front, name: str) -> Callable[[], Awaitable[bool]]:
    async def nobody_has_it() -> bool:
        info = await rival.inspect(name)
        return not info.holders and not info.waiters

    return nobody_has_it


@pytest.mark.by_turns
@pytest.mark.parametrize(("direction", "mode"), [("requests", "stall"), ("replies", "drop"), ("replies", "stall")])
async def test_a_release_that_is_not_answered_is_unknown_and_done_in_the_end(
    far_stage: Stage, rival: Front, proxy: Proxy, direction: str, mode: str
) -> None:
    client = await client_behind(far_stage, ttl=1.5)
    held = await client.lock("k").acquire()
    way(proxy, direction).set(mode)  # type: ignore[arg-type]
    with pytest.raises(EngineUnavailable) as error:
        await held.release()

    assert error.value.outcome == "unknown"
    assert not held.valid
    proxy.heal()
    await eventually(free(rival, "k"))


@pytest.mark.by_turns
@pytest.mark.parametrize(("direction", "mode"), [("requests", "stall"), ("replies", "drop"), ("replies", "stall")])
async def test_renewals_that_are_not_answered_put_the_lock_in_danger_and_then_lose_it_before_the_engine_lets_go(
    far_stage: Stage, rival: Front, proxy: Proxy, direction: str, mode: str
) -> None:
    client = await client_behind(far_stage, ttl=1.5)
    held = await client.lock("k").acquire()
    lost_when_free: list[bool] = []
    way(proxy, direction).set(mode)  # type: ignore[arg-type]
    await eventually(lambda: held.in_danger)

    theirs = await rival.lock("k").acquire(wait=10.0)
    lost_when_free.append(not held.valid)
    assert lost_when_free == [True]
    await eventually(held.lost.is_set)
    assert theirs.token > held.token


@pytest.mark.by_turns
async def test_a_heartbeat_that_gets_through_again_in_time_takes_the_danger_away(
    far_stage: Stage, rival: Front, proxy: Proxy
) -> None:
    client = await client_behind(far_stage, ttl=3.0)
    held = await client.lock("k").acquire()
    proxy.go_down()
    await eventually(lambda: held.in_danger)
    proxy.heal()

    await eventually(lambda: not held.in_danger)
    held.check()
    assert await rival.lock("k").try_acquire() is None


@pytest.mark.by_turns
async def test_a_renewal_that_the_caller_asked_for_and_that_fails_puts_the_lock_in_danger(
    far_stage: Stage, proxy: Proxy
) -> None:
    """The next heartbeat of the keeper is due in 10 s."""
    client = await client_behind(far_stage, ttl=30.0)
    held = await client.lock("k").acquire()
    proxy.go_down()
    with pytest.raises(EngineUnavailable):
        await held.renew()

    assert held.in_danger
    proxy.heal()
    await eventually(lambda: not held.in_danger)


@pytest.mark.by_turns
async def test_what_was_never_sent_was_not_done(far_stage: Stage, proxy: Proxy) -> None:
    client = await client_behind(far_stage)
    cell = client.cell("c")
    proxy.go_down()
    await eventually(lambda: proxy.connections == 0)
    with pytest.raises(EngineUnavailable) as error:
        # A cell is never sent twice, so what it says is about one try. The first may find a dead connection.
        await cell.set(1)
    if error.value.outcome == "unknown":
        with pytest.raises(EngineUnavailable) as error:
            await cell.set(1)

    assert error.value.outcome == "not done"
    proxy.heal()
    assert await cell.get() == (None, 0)


async def test_a_write_to_a_cell_whose_reply_was_cut_is_unknown_and_not_repeated(
    far_stage: Stage, proxy: Proxy, rival: Front
) -> None:
    client = await client_behind(far_stage)
    version = await client.cell("c").set(1)
    proxy.replies.set("cut", after=0)
    with pytest.raises(EngineUnavailable) as error:
        await client.cell("c").set(2, version)
    proxy.heal()

    assert error.value.outcome == "unknown"
    assert (await rival.cell("c").get())[0] == 2


async def test_a_waiter_whose_connections_were_cut_is_woken_all_the_same(
    far_stage: Stage, rival: Front, proxy: Proxy
) -> None:
    client = await client_behind(far_stage)
    held = await rival.lock("k").acquire()
    waiting = await far_stage.queued(rival, "k", client.lock("k").acquire())
    proxy.cut()
    await held.release()

    assert (await soon(waiting)).valid


@pytest.mark.parametrize("direction", ["requests", "replies"])
async def test_a_lock_goes_on_within_a_client_when_the_release_is_cut_at_any_byte(
    far_stage: Stage, rival: Front, proxy: Proxy, direction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody looks by itself.
    monkeypatch.setattr(acquire, "FIRST_POLL", 3600.0)
    client = await client_behind(far_stage)
    for byte in [0, 20, 60, 100, 140] if direction == "requests" else range(0, 36, 5):
        held = await client.lock("k").acquire()
        waiting = await far_stage.queued(rival, "k", far_stage.another(client).lock("k").acquire())
        way(proxy, direction).set("cut", after=byte)
        await held.release()
        proxy.heal()

        theirs = await soon(waiting)
        assert theirs.token > held.token
        await theirs.release()


async def test_a_slow_network_is_no_failure(far_stage: Stage, proxy: Proxy) -> None:
    client = await client_behind(far_stage)
    proxy.replies.delay = 0.1
    held = await asyncio.wait_for(client.lock("k").acquire(wait=5.0), 10.0)

    held.check()
    await held.release()
