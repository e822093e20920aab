"""What becomes of a grant that is handed over, at the moments in which its receiver fails."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

import holdfast
from holdfast import EngineUnavailable, NotHeld
from holdfast.core.table.commands import Done
from holdfast.engines.etcd.session import HELD_TOO_LONG
from holdfast.locks.handing import digest
from holdfast.model import Gone, Granted
from holdfast.runtime import clock
from holdfast.runtime.blocking import run
from holdfast.verify.servers.etcd import EtcdServer
from tests.engines.etcd.conftest import Connect
from tests.engines.etcd.test_outcome import LosingPort
from tests.engines.etcd.test_recipe import claim_of, keys
from tests.servers.process import wait_until


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("same_client", [True, False])
def test_an_adoption_that_is_withdrawn_removes_only_what_it_has_written(
    connect: Connect, same_client: bool, applied: bool
) -> None:
    """The sender's key may hang on the lease of the receiver: they may be one client."""
    sender = connect(ttl=60.0)
    receiver = sender if same_client else connect(ttl=60.0)
    grant = sender.lock("k").acquire()
    _, source, secret, *_ = grant.hand_over().split(" ")
    verbs: Any = receiver._core.verbs
    claim, until = claim_of(receiver, "k"), verbs.io.now() + 5.0
    port = verbs.io.port
    verbs.io.port = LosingPort(verbs, 2, "unanswered" if applied else "unsent")
    with pytest.raises(EngineUnavailable):
        run(verbs.adopt(claim, source, digest(secret), until))
    verbs.io.port = port
    assert run(verbs.leave(claim, True, until)) == Done()

    held = [holder.claim for holder in sender.inspect("k").holders]
    assert held == ([] if applied else [source])
    if applied:
        wait_until(lambda: not grant.valid, 10.0, "the sender hearing that it was adopted")
    else:
        grant.release()


@pytest.mark.parametrize("end", ["release", "adopt", "break", "max_hold"])
def test_a_ticket_goes_with_its_grant(server: EtcdServer, connect: Connect, namespace: str, end: str) -> None:
    """A client that lives for months hands over now and then."""
    sender, receiver = connect(ttl=60.0), connect(ttl=60.0)
    for client in (sender, receiver):
        client.lock("warm-up").acquire().release()
    before = keys(server, namespace)
    grant = sender.lock("k", max_hold=1.0 if end == "max_hold" else None).acquire()
    text = grant.hand_over()
    assert [key for key in keys(server, namespace) if key.startswith("h/")]
    if end == "release":
        grant.release()
    elif end == "adopt":
        receiver.adopt(text).release()
    elif end == "break":
        receiver.break_lock("k", force=True)

    wait_until(lambda: keys(server, namespace) == before, 10.0, "nothing of the grant being left")
    with pytest.raises(NotHeld):
        receiver.adopt(text)


def test_an_adoption_goes_on_with_what_was_left_of_max_hold(connect: Connect) -> None:
    sender, receiver = connect(ttl=60.0), connect(ttl=60.0)
    grant = sender.lock("k", max_hold=2.0).acquire()
    adopted = receiver.adopt(grant.hand_over())
    again = sender.adopt(adopted.hand_over())

    assert again.remaining <= 2.0
    wait_until(again.lost.is_set, 10.0, "the end of max_hold")
    with connect().lock("k", wait=10.0) as after:
        assert after.token > again.token


def test_the_time_until_an_adoption_counts_towards_max_hold(connect: Connect) -> None:
    """etcd tells the time in whole seconds. That is lost once, however often the lock is handed over."""
    sender, receiver = connect(ttl=60.0), connect(ttl=60.0)
    grants = [sender.lock("k", max_hold=5.0).acquire()]
    ends = clock.now() + grants[0].remaining
    for left in (4.2, 3.4, 2.6, 1.8):
        text = grants[-1].hand_over()
        wait_until(partial(older, ends - left), 10.0, "the hold being older")
        grants.append(receiver.adopt(text))
        sender, receiver = receiver, sender

        assert ends - 0.2 < clock.now() + grants[-1].remaining < ends + 1.2
    wait_until(grants[-1].lost.is_set, 10.0, "the end of max_hold")


def older(moment: float) -> bool:
    return clock.now() > moment


def test_a_hold_whose_time_is_over_is_not_adopted(connect: Connect) -> None:
    """Also if its sender has not noticed that yet."""
    sender, receiver = connect(ttl=60.0), connect(ttl=60.0)
    limited = replace(claim_of(sender, "k"), max_hold=1.0)
    verbs, theirs = sender._core.verbs, receiver._core.verbs
    until = verbs.io.now() + 20.0
    assert isinstance(run(verbs.enter(limited, until)), Granted)
    assert run(verbs.hand_over(limited, "secret", until)) == Done()
    adopter, began = claim_of(receiver, "k"), clock.now()
    wait_until(partial(older, began + 2.5), 10.0, "the hold being too old")

    assert run(theirs.adopt(adopter, limited.id, "secret", until)) == Gone(HELD_TOO_LONG)
    assert [holder.claim for holder in sender.inspect("k").holders] == [limited.id]


def test_a_client_that_waits_ends_an_adopted_hold_when_its_time_is_over(connect: Connect) -> None:
    """Its own client may be gone, or does not care."""
    sender, receiver, rival = connect(ttl=60.0), connect(ttl=60.0), connect()
    held = claim_of(sender, "k")
    limited = replace(held, max_hold=1.0)
    verbs, theirs = sender._core.verbs, receiver._core.verbs
    until = verbs.io.now() + 5.0
    assert isinstance(run(verbs.enter(limited, until)), Granted)
    assert run(verbs.hand_over(limited, "secret", until)) == Done()
    adopted = run(theirs.adopt(claim_of(receiver, "k"), limited.id, "secret", until))
    assert isinstance(adopted, Granted)
    assert adopted.hold_left is not None
    assert 0 < adopted.hold_left <= 1.0

    rival.lock("k").acquire(wait=20.0).release()


def test_a_grant_that_an_operator_is_breaking_is_not_adopted(connect: Connect) -> None:
    sender, receiver = connect(ttl=60.0), connect(ttl=60.0)
    claim, verbs = claim_of(sender, "k"), sender._core.verbs
    until = verbs.io.now() + 5.0
    assert isinstance(run(verbs.enter(claim, until)), Granted)
    assert run(verbs.hand_over(claim, "secret", until)) == Done()
    told = run(verbs.break_lock(claim.kind, claim.name, False, until))
    reply = run(receiver._core.verbs.adopt(claim_of(receiver, "k"), claim.id, "secret", until))

    assert told.claims == (claim.id,)
    assert not isinstance(reply, Granted)


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("what", ["lock", "semaphore"])
def test_a_break_that_comes_upon_an_adoption_ends_the_adopted_hold(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, what: str, force: bool
) -> None:
    sender, receiver, operator = connect(ttl=60.0), connect(ttl=60.0), connect(ttl=60.0)
    sent = (sender.lock("k") if what == "lock" else sender.semaphore("k", limit=2)).acquire()
    text = sent.hand_over()
    adopted: list[holdfast.Grant] = []
    verbs: Any = operator._core.verbs
    real = verbs._line_rows

    async def rows(*args: Any) -> Any:
        found = await real(*args)
        if not adopted:
            adopted.append(receiver.adopt(text))
        return found

    monkeypatch.setattr(verbs, "_line_rows", rows)

    assert operator.break_lock("k", kind=what, force=force) == 1
    assert operator.inspect("k", kind=what).holders == ()
    wait_until(lambda: adopted[0].lost.is_set() and sent.lost.is_set(), 10.0, "the loss being reported")


def test_a_break_that_comes_upon_a_release_breaks_no_later_claim(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, rival, operator = connect(ttl=60.0), connect(ttl=60.0), connect(ttl=60.0)
    first = holder.lock("k").acquire()
    later: list[holdfast.Grant] = []
    verbs: Any = operator._core.verbs
    real = verbs._line_rows

    async def rows(*args: Any) -> Any:
        found = await real(*args)
        if not later:
            first.release()
            later.append(rival.lock("k").acquire())
        return found

    monkeypatch.setattr(verbs, "_line_rows", rows)

    assert operator.break_lock("k", force=True) == 0
    later[0].release()
