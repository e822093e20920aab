"""A grant that goes to another client without a moment in between."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import HoldfastError, InvalidRequest, LockLost, NotHeld, Unsupported
from holdfast.runtime.blocking import run
from tests.conformance.abilities import needs
from tests.conformance.apis import Front
from tests.conformance.refusals import declined
from tests.conformance.stage import Stage, eventually, soon


@pytest.mark.any_connection
@needs("hand_over")
async def test_the_adopter_holds_with_a_higher_token(locks: Front, rival: Front) -> None:
    sent = await locks.lock("k").acquire()
    adopted = await rival.adopt(await sent.hand_over())

    assert adopted.name == "k"
    assert adopted.token > sent.token
    assert adopted.valid
    assert await locks.lock("k").try_acquire() is None


@needs("hand_over")
async def test_the_sender_holds_until_then(locks: Front, rival: Front) -> None:
    sent = await locks.lock("k").acquire()
    await sent.hand_over()

    sent.check()
    assert await rival.lock("k").try_acquire() is None
    await sent.release()
    assert await rival.lock("k").try_acquire() is not None


@needs("hand_over")
async def test_the_senders_grant_is_lost(locks: Front, rival: Front) -> None:
    sent = await locks.lock("k").acquire()
    lost = sent.lost
    adopted = await rival.adopt(await sent.hand_over())

    await eventually(lost.is_set)
    assert not sent.valid
    with pytest.raises(LockLost, match="handed over"):
        await sent.release()
    assert adopted.valid
    assert [holder.token for holder in (await locks.inspect("k")).holders] == [adopted.token]


@needs("hand_over")
async def test_it_is_adopted_once(stage: Stage, locks: Front, rival: Front) -> None:
    sent = await locks.lock("k").acquire()
    text = await sent.hand_over()
    adopted = await rival.adopt(text)

    with pytest.raises(NotHeld):
        await stage.another(rival).adopt(text)
    with pytest.raises(NotHeld):
        await locks.adopt(text)
    assert adopted.valid


@needs("hand_over")
async def test_a_line_of_waiters_does_not_overtake_an_adoption(stage: Stage, locks: Front, rival: Front) -> None:
    sent = await locks.lock("k").acquire()
    waiting = await stage.queued(locks, "k", stage.another(rival).lock("k").acquire())
    adopted = await rival.adopt(await sent.hand_over())

    assert not waiting.done()
    await adopted.release()
    assert (await soon(waiting)).token > adopted.token


@needs("hand_over")
async def test_it_is_void_when_the_sender_has_released(locks: Front, rival: Front) -> None:
    sent = await locks.lock("k").acquire()
    text = await sent.hand_over()
    await sent.release()

    with pytest.raises(NotHeld):
        await rival.adopt(text)


@pytest.mark.any_connection
@needs("hand_over")
async def test_it_is_void_when_the_senders_client_was_closed(locks: Front, rival: Front) -> None:
    sent = await locks.lock("k").acquire()
    text = await sent.hand_over()
    await locks.close()

    with pytest.raises(NotHeld):
        await rival.adopt(text)
    assert await rival.lock("k").try_acquire() is not None


@pytest.mark.by_turns
@needs("hand_over")
async def test_it_is_void_when_the_senders_session_has_run_out(stage: Stage, rival: Front) -> None:
    dying = await stage.client(ttl=1.0)
    sent = await dying.lock("k").acquire()
    text = await sent.hand_over()
    stage.silence(dying)
    theirs = await rival.lock("k").acquire(wait=10.0)

    with pytest.raises(NotHeld):
        await stage.another(rival).adopt(text)
    assert theirs.valid


@needs("hand_over")
async def test_a_grant_that_is_not_held_cannot_be_handed_over(stage: Stage, locks: Front, rival: Front) -> None:
    released = await locks.lock("k").acquire()
    await released.release()
    lost = await locks.lock("k").acquire()
    await stage.take_away("k", rival)

    with pytest.raises(NotHeld):
        await released.hand_over()
    with pytest.raises(LockLost):
        await lost.hand_over()


async def test_a_grant_is_held_whether_or_not_it_can_be_handed_over(locks: Front, rival: Front) -> None:
    held = await locks.lock("k").acquire()
    if locks.guarantees.hand_over:
        assert await held.hand_over()
    else:
        with pytest.raises(Unsupported, match="hand-over"):
            await held.hand_over()

    held.check()
    assert await rival.lock("k").try_acquire() is None


async def test_what_is_no_hand_over_is_refused(locks: Front) -> None:
    texts = ["", "garbage", "hf1", "hf1 a b c d", "hf1 a b holdfast.lock  k", "hf1 a b holdfast.lock x9z k"]
    others = [7, None, b"x"]
    assert [each for each in [*texts, *others] if not await declined(locks.adopt(each))] == []


@needs("hand_over")
async def test_a_forged_secret_adopts_nothing(locks: Front, rival: Front) -> None:
    sent = await locks.lock("k").acquire()
    text = await sent.hand_over()
    parts = text.split(" ")
    parts[2] = parts[2][::-1] + "x"

    with pytest.raises(HoldfastError):
        await rival.adopt(" ".join(parts))
    assert sent.valid


@needs("hand_over")
async def test_a_text_from_another_namespace_is_refused(stage: Stage, locks: Front) -> None:
    elsewhere = await stage.client(namespace="elsewhere")
    sent = await locks.lock("k").acquire()

    with pytest.raises(InvalidRequest):
        await elsewhere.adopt(await sent.hand_over())
    assert sent.valid


@needs("semaphore", "hand_over")
async def test_a_permit_keeps_its_slot(locks: Front, rival: Front) -> None:
    held = [await locks.semaphore("s", limit=2).acquire() for _ in range(2)]
    adopted = await rival.adopt(await held[1].hand_over())

    assert adopted.slot == held[1].slot
    assert adopted.token > held[1].token
    assert held[0].valid
    await adopted.release()
    assert await rival.semaphore("s", limit=2).try_acquire() is not None


@needs("shared", "hand_over")
async def test_a_readers_grant_stays_a_readers(locks: Front, rival: Front) -> None:
    sent = await locks.rwlock("k").read().acquire()
    adopted = await rival.adopt(await sent.hand_over())

    assert adopted.shared
    assert await locks.rwlock("k").read().try_acquire() is not None


@pytest.mark.by_turns
@needs("hand_over", "record")
async def test_a_grant_that_is_being_broken_cannot_be_adopted(stage: Stage, locks: Front, rival: Front) -> None:
    """The sender's client does not hear of the break, so the grant stays until its time is over."""
    quiet = await stage.client(ttl=2.0)
    text = await (await quiet.lock("k").acquire()).hand_over()
    await silent(stage, quiet)
    await tell_to_go(stage, locks, "k")

    with pytest.raises(NotHeld):
        await rival.adopt(text)
    await locks.break_lock("k")
    assert (await rival.inspect("k")).holders == ()
    with pytest.raises(NotHeld):
        await rival.adopt(text)


@needs("hand_over", "record")
async def test_a_grant_that_is_being_broken_cannot_be_handed_over(stage: Stage, locks: Front, rival: Front) -> None:
    quiet = await stage.client(ttl=10.0)
    sent = await quiet.lock("k").acquire()
    await silent(stage, quiet)
    await tell_to_go(stage, locks, "k")

    try:
        text = await sent.hand_over()
    except LockLost as lost:
        if "broke" not in lost.reason:
            raise
    else:
        # Where the note of the break is read by the receiver.
        with pytest.raises(NotHeld):
            await rival.adopt(text)


async def silent(stage: Stage, client: Front) -> None:
    """Stop a client's keeper, and wait until it has stopped."""
    done = client.target._core.keeper.done
    stage.silence(client)
    await eventually(done.is_set)


async def tell_to_go(stage: Stage, by: Front, name: str) -> None:
    """Begin to break a lock, and do not wait for its holder."""
    core = by.target._core

    async def begin() -> Any:
        return await core.verbs.break_lock(core.kind("lock"), name, False, core.until())

    begun = await by.actor.do(stage.api.function(begin, lambda: run(begin())))
    assert len(begun.claims) == 1


@needs("hand_over")
async def test_an_adopted_hold_ends_when_the_senders_would_have(locks: Front, rival: Front) -> None:
    sent = await locks.lock("k", max_hold=1.0).acquire()
    adopted = await rival.adopt(await sent.hand_over())

    assert 0 < adopted.remaining <= 1.0
    await eventually(adopted.lost.is_set)
    with pytest.raises(LockLost, match="max_hold"):
        await adopted.release()


@pytest.mark.by_turns
@needs("hand_over")
async def test_the_time_until_an_adoption_counts_towards_max_hold(locks: Front, rival: Front) -> None:
    sent = await locks.lock("k", max_hold=4.0).acquire()
    text = await sent.hand_over()
    await eventually(lambda: sent.remaining < 2.5)
    adopted = await rival.adopt(text)

    # An engine may count in whole seconds.
    assert 0 < adopted.remaining < 3.5
    await adopted.release()
