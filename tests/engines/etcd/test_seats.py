"""Keys in a line come again, and nothing that was sent for an earlier claim touches a later one."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from holdfast.core.table.commands import Done
from holdfast.core.table.rows import Session
from holdfast.engines.etcd.keys import new_record
from holdfast.engines.etcd.ledger import Ledger
from holdfast.engines.etcd.watcher import Watcher
from holdfast.engines.etcd.wire import WATCH, Answer, Request
from holdfast.locks import acquire
from holdfast.model import Claim, Granted, Mode, Place, Refused
from holdfast.runtime.blocking import run
from holdfast.verify.servers.etcd import EtcdServer
from tests.engines.etcd.conftest import Connect
from tests.engines.etcd.test_recipe import claim_of, count, keys
from tests.faults.injection import Injected, Moments, count_moments
from tests.servers.process import wait_until


class Recording:
    """A client's port that keeps what is sent, and says of every answer whether it may have been sent before."""

    def __init__(self, verbs: Any, repeated: bool = False) -> None:
        self.port, self.repeated = verbs.io.port, repeated
        self.sent: list[Request] = []
        self.before_second: Callable[[], object] = int
        """Called when the first was answered, and the second is not sent yet."""
        self._now = verbs.io.now
        verbs.io.port = self

    def call(self, request: Request, until: float) -> Answer:
        if len(self.sent) == 1:
            self.before_second()
        self.sent.append(request)
        answer: Answer = self.port.call(request, until)
        answer.repeated = self.repeated
        return answer

    def again(self, number: int) -> None:
        """What was sent arrives once more."""
        self.port.call(self.sent[number], self._now() + 5.0)


def lines(server: EtcdServer, namespace: str) -> list[str]:
    return [key for key in keys(server, namespace) if key.startswith("l/")]


def test_a_lock_that_is_taken_often_has_one_key(server: EtcdServer, connect: Connect, namespace: str) -> None:
    locks = connect()
    seen: set[str] = set()
    for _ in range(5):
        with locks.lock("k"):
            seen.update(lines(server, namespace))

    assert len(seen) == 1


def test_waiters_that_come_again_and_again_use_the_same_keys(
    server: EtcdServer, connect: Connect, namespace: str
) -> None:
    locks = connect()
    seen: set[str] = set()
    for _ in range(3):
        held = locks.lock("k").acquire()
        waiter = threading.Thread(target=lambda: locks.lock("k").acquire().release())
        waiter.start()
        wait_until(lambda: len(lines(server, namespace)) == 2, 10.0, "standing in line")
        seen.update(lines(server, namespace))
        held.release()
        waiter.join(10.0)

    assert len(seen) == 2


@pytest.mark.parametrize(("retire", "same"), [(False, True), (True, False)])
def test_a_key_whose_fate_is_not_known_is_not_used_again(retire: bool, same: bool) -> None:
    ledger, session = Ledger("etcd://", threading.RLock()), Session("abc", 10.0, 0.0)
    ledger.begin(session)
    records = [new_record(Claim(f"abc-{n}", "abc", "o", "n.lock", "k"), session, "queued") for n in range(2)]
    first = ledger.enter(records[0], "line/")
    ledger.forget("abc-0", retire=retire)

    assert (ledger.enter(records[1], "line/").key == first.key) is same


def forgetting() -> tuple[Ledger, str, Callable[[], None]]:
    """A client's record with one claim, and what forgets that claim."""
    ledger, session = Ledger("etcd://", threading.RLock()), Session("abc", 10.0, 0.0)
    ledger.begin(session)
    entry = ledger.enter(new_record(Claim("abc-0", "abc", "o", "n.lock", "k"), session, "queued"), "line/")
    ledger.queue(entry, "line/").admit("abc-0")
    return ledger, "abc-0", lambda: ledger.forget("abc-0")


def test_an_interrupt_while_a_claim_is_forgotten_keeps_nothing_of_it() -> None:
    moments = count_moments(forgetting()[2])
    for at in range(moments):
        ledger, claim_id, forget = forgetting()
        fault = Moments(at, Injected)
        with suppress(Injected):
            fault.run(forget)
        # What the client does for a claim that an ended call has left.
        ledger.forget(claim_id)
        kept = ledger.entries, dict(ledger._seats), ledger._owners, ledger._queues
        assert kept == ({}, {}, {}, {}), fault.where


def test_leaving_a_claim_that_is_gone_leaves_the_next_one_alone(connect: Connect) -> None:
    locks = connect()
    verbs, former, claim = locks._core.verbs, claim_of(locks, "k"), claim_of(locks, "k")
    until = verbs.io.now() + 5.0
    run(verbs.enter(former, until))
    run(verbs.release(former, until))
    granted = run(verbs.enter(claim, until))
    run(verbs.leave(former, True, until))

    assert isinstance(granted, Granted)
    assert [holder.claim for holder in locks.inspect("k").holders] == [claim.id]


def test_a_withdrawal_that_arrives_twice_leaves_the_next_one_alone(connect: Connect) -> None:
    locks, rival = connect(), connect()
    held = rival.lock("k").acquire()
    verbs, former, claim = locks._core.verbs, claim_of(locks, "k"), claim_of(locks, "k")
    until = verbs.io.now() + 5.0
    sent = Recording(verbs)
    assert isinstance(run(verbs.enter(former, until)), Place)
    run(verbs.leave(former, False, until))
    assert isinstance(run(verbs.enter(claim, until)), Place)
    sent.again(1)

    assert [waiter.claim for waiter in locks.inspect("k").waiters] == [claim.id]
    held.release()


@pytest.mark.parametrize("repeated", [True, False], ids=["known", "control"])
def test_a_try_that_arrives_after_the_release_holds_nothing_if_it_was_known_of(
    connect: Connect, repeated: bool
) -> None:
    """The control: had the client not known that there was an earlier try, it would hold for ever."""
    locks = connect()
    verbs, claim = locks._core.verbs, claim_of(locks, "k")
    until = verbs.io.now() + 5.0
    sent = Recording(verbs, repeated)
    run(verbs.enter(claim, until))
    run(verbs.release(claim, until))
    sent.again(0)

    assert [holder.claim for holder in locks.inspect("k").holders] == ([] if repeated else [claim.id])


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("kind", ["lock", "semaphore"])
def test_a_try_that_arrives_after_a_refusal_holds_nothing(connect: Connect, kind: str, at_once: bool) -> None:
    locks, rival = connect(), connect()
    theirs: Any = rival.lock("k") if kind == "lock" else rival.semaphore("k", limit=1)
    held = theirs.acquire()
    verbs, made = locks._core.verbs, claim_of(locks, "k")
    claim = Claim(
        made.id, made.session, made.owner, f"{locks._core.namespace}.{kind}", "k",
        limit=int(kind == "semaphore"), waits=False,
    )  # fmt: skip
    until = verbs.io.now() + 5.0
    sent = Recording(verbs, repeated=True)

    def arrive() -> None:
        held.release()
        sent.again(0)

    if at_once:
        sent.before_second = arrive
    assert isinstance(run(verbs.enter(claim, until)), Refused)
    if not at_once:
        arrive()

    assert rival.inspect("k", kind=kind).holders == ()


def test_a_lock_that_was_handed_over_can_be_waited_for_by_its_sender(connect: Connect) -> None:
    locks, rival = connect(), connect()
    sent = locks.lock("k").acquire()
    adopted = rival.adopt(sent.hand_over())
    wait_until(lambda: not sent.valid, 10.0, "the sender hearing of it")
    assert locks.lock("k").try_acquire() is None
    adopted.release()

    with locks.lock("k", wait=10.0) as after:
        assert after.token > adopted.token


def watcher(locks: Any) -> Watcher:
    found: Watcher = locks._core.engine.watcher
    return found


def watches(locks: Any) -> Counter[str]:
    """What is sent from now on; the stream is there, and what was to be watched before is."""
    locks.lock("warm-up").acquire().release()
    wait_until(lambda: watcher(locks)._stream is not None, 10.0, "the stream")
    with watcher(locks).lock:
        return count(locks)


def wait_for_the_other(locks: Any, rival: Any) -> None:
    """Take the lock when the other one, who has it, gives it back."""
    held = rival.lock("k").acquire()
    waiter = threading.Thread(target=lambda: locks.lock("k").acquire().release())
    waiter.start()
    wait_until(lambda: len(watcher(locks)._names) == 2, 10.0, "watching its session and the other's key")
    held.release()
    waiter.join(20.0)
    assert not waiter.is_alive()


def test_who_takes_turns_asks_once_to_be_told_of_the_other(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nobody looks by itself.
    monkeypatch.setattr(acquire, "FIRST_POLL", 3600.0)
    locks, rival = connect(), connect()
    counted = watches(locks)
    for _ in range(8):
        wait_for_the_other(locks, rival)

    assert counted[WATCH] == 1


def test_an_end_that_nobody_waited_for_ends_the_watch(connect: Connect) -> None:
    locks, rival = connect(), connect()
    counted = watches(locks)
    wait_for_the_other(locks, rival)
    rival.lock("k").acquire().release()
    wait_until(lambda: counted[WATCH] == 2, 10.0, "the watch being ended")
    for _ in range(5):
        rival.lock("k").acquire().release()

    assert list(watcher(locks)._names) == ["session"]
    assert len(watcher(locks)._watches) == 1


@pytest.mark.parametrize("mode", ["exclusive", "shared"])
def test_a_confirmation_that_arrives_twice_is_released_all_the_same(connect: Connect, mode: Mode) -> None:
    locks, rival = connect(), connect()
    held = rival.lock("k").acquire()
    verbs, claim = locks._core.verbs, replace(claim_of(locks, "k"), mode=mode)
    until = verbs.io.now() + 5.0
    sent = Recording(verbs)
    assert isinstance(run(verbs.enter(claim, until)), Place)
    held.release()
    granted = run(verbs.look(claim, until))
    assert isinstance(granted, Granted)
    sent.again(-1)
    (holder,) = locks.inspect("k").holders

    assert holder.token == granted.token
    assert run(verbs.release(claim, until)) == Done()
    assert locks.inspect("k").holders == ()


@pytest.mark.parametrize("mode", ["exclusive", "shared"])
def test_a_confirmation_whose_answer_was_lost_counts(connect: Connect, mode: Mode) -> None:
    locks, rival = connect(), connect()
    held = rival.lock("k").acquire()
    verbs: Any = locks._core.verbs
    claim = replace(claim_of(locks, "k"), mode=mode)
    until = verbs.io.now() + 5.0
    assert isinstance(run(verbs.enter(claim, until)), Place)
    held.release()
    verbs.io.port.call(verbs.line._confirm(verbs.ledger.get(claim.id)), until)
    (holder,) = locks.inspect("k").holders
    granted = run(verbs.look(claim, until))

    assert (isinstance(granted, Granted), granted.token) == (True, holder.token)
    assert run(verbs.release(claim, until)) == Done()
