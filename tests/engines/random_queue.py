"""Clients that take turns in one queue, verb by verb, in a random order. Each step is checked for what is promised."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.table.commands import Done, Notice
from holdfast.model import Claim, Gone, Granted, Place
from holdfast.runtime.blocking import run
from tests.servers.process import wait_until

SEEDS = range(int(os.environ.get("HOLDFAST_SEEDS", "6")))
LIMIT = 2
"""How many permits the semaphore has."""


@dataclass
class Member:
    """One client's claims on one name."""

    locks: Any
    waiting: dict[str, Claim] = field(default_factory=dict)
    woken: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        engine, deliver = self.locks._core.engine, self.locks._core.engine.deliver

        def hear(notice: Notice) -> None:
            self.woken.add(notice.subject)
            deliver(notice)

        engine.deliver = hear
        self.locks.lock("warm-up").acquire().release()

    @property
    def verbs(self) -> Any:
        return self.locks._core.verbs

    @property
    def until(self) -> float:
        return float(self.verbs.io.now()) + 10.0

    def claim(self, kind: str, **settings: Any) -> Claim:
        """A claim that the engine has not heard of, of an owner of its own."""
        core = self.locks._core
        id_ = f"{core.session.id}-{next(core.session.numbers)}"
        return Claim(id_, core.session.id, id_, f"{core.namespace}.{kind}", "k", **settings)


@dataclass
class Held:
    """A grant that was given, and not given back."""

    member: Member
    claim: Claim
    token: int
    slot: int | None


class Queue:
    """One lock or semaphore: who holds it and who waits, by the answers that were given."""

    def __init__(
        self, kind: str, seed: int, new_member: Callable[[], Member], end_session: Callable[[Any], None]
    ) -> None:
        self.kind, self.chance = kind, random.Random(seed)
        self.new_member, self.end_session = new_member, end_session
        self.members = [new_member() for _ in range(1 + seed % 3)]
        self.held: dict[str, Held] = {}
        self.waiting_since: dict[str, int] = {}
        self.answered = 0
        self.highest = self.highest_exclusive = 0
        self.of_slot: dict[int | None, int] = {}

    # What is promised

    def took(self, member: Member, claim: Claim, reply: object) -> None:
        """An enter or a look was answered."""
        self.answered += 1
        member.waiting.pop(claim.id, None)
        since = self.waiting_since.pop(claim.id, self.answered)
        if isinstance(reply, Place):
            member.waiting[claim.id] = claim
            self.waiting_since[claim.id] = since
            return
        assert isinstance(reply, Granted), reply
        self.check(claim, reply, since)
        self.keep(member, claim, reply)

    def check(self, claim: Claim, reply: Granted, since: int) -> None:
        if claim.limit:
            assert len(self.held) < claim.limit, "more permits than there are"
            assert reply.slot not in {held.slot for held in self.held.values()}, "a permit is held twice"
            assert reply.token > self.of_slot.get(reply.slot, 0)
            return
        modes = [held.claim.mode for held in self.held.values()]
        assert not modes or {claim.mode, *modes} == {"shared"}, "two hold, and one of them alone"
        assert reply.token > (self.highest if claim.mode == "exclusive" else self.highest_exclusive)
        for member in self.members:
            for other in member.waiting.values():
                earlier = self.waiting_since[other.id] < since
                assert not earlier or {claim.mode, other.mode} == {"shared"}, "an earlier one was overtaken"

    def keep(self, member: Member, claim: Claim, reply: Granted) -> None:
        self.held[claim.id] = Held(member, claim, reply.token, reply.slot)
        self.of_slot[reply.slot] = reply.token
        self.highest = max(self.highest, reply.token)
        if claim.mode == "exclusive":
            self.highest_exclusive = max(self.highest_exclusive, reply.token)

    # What clients do

    def one(self, found: dict[str, Any]) -> Any:
        return found[self.chance.choice(sorted(found))]

    def enter(self) -> None:
        member = self.chance.choice(self.members)
        if self.kind == "semaphore":
            claim = member.claim(self.kind, limit=LIMIT)
        else:
            claim = member.claim(self.kind, mode=self.chance.choice(["shared", "exclusive", "exclusive"]))
        self.took(member, claim, run(member.verbs.enter(claim, member.until)))

    def release(self) -> None:
        if self.held:
            held = self.held.pop(self.one(self.held).claim.id)
            assert run(held.member.verbs.release(held.claim, held.member.until)) == Done()

    def leave(self) -> None:
        member = self.chance.choice(self.members)
        if member.waiting:
            claim = member.waiting.pop(self.one(member.waiting).id)
            del self.waiting_since[claim.id]
            run(member.verbs.leave(claim, False, member.until))

    def look(self) -> None:
        """Because of a notice, or without one: both have to find what there is to be had."""
        member = self.chance.choice(self.members)
        if member.waiting:
            called = {id_: claim for id_, claim in member.waiting.items() if id_ in member.woken}
            claim = self.one(called or member.waiting)
            member.woken.discard(claim.id)
            verb = self.chance.choice([member.verbs.look, member.verbs.look, member.verbs.enter])
            self.took(member, claim, run(verb(claim, member.until)))

    def hand_over(self) -> None:
        if self.held:
            held = self.held.pop(self.one(self.held).claim.id)
            assert run(held.member.verbs.hand_over(held.claim, "ticket", held.member.until)) == Done()
            receiver = self.chance.choice(self.members)
            claim = receiver.claim(self.kind, mode=held.claim.mode, limit=held.claim.limit)
            reply = run(receiver.verbs.adopt(claim, held.claim.id, "ticket", receiver.until))
            assert isinstance(reply, Granted)
            assert (reply.token > held.token, reply.slot) == (True, held.slot)
            self.keep(receiver, claim, reply)
            assert isinstance(run(held.member.verbs.release(held.claim, held.member.until)), Gone)

    def break_all(self) -> None:
        member = self.chance.choice(self.members)
        kind = f"{member.locks._core.namespace}.{self.kind}"
        told = run(member.verbs.break_lock(kind, "k", True, member.until)).claims
        assert set(told) >= self.held.keys()
        for held in self.held.values():
            assert isinstance(run(held.member.verbs.release(held.claim, held.member.until)), Gone)
        self.held.clear()
        # Where the place in the queue is the grant, those that have not looked yet are told as well.
        for other in self.members:
            for id_ in other.waiting.keys() & set(told):
                del self.waiting_since[id_]
                self.is_told(other, other.waiting.pop(id_))

    def is_told(self, member: Member, claim: Claim) -> None:
        """A waiter that was removed from the queue hears of it."""
        replies: list[object] = []

        def look() -> bool:
            replies.append(run(member.verbs.look(claim, member.until)))
            return not isinstance(replies[-1], Place)

        wait_until(look, 10.0, "the end of a broken claim")
        if isinstance(replies[-1], Granted):  # before it was broken
            replies.append(run(member.verbs.release(claim, member.until)))
        assert isinstance(replies[-1], Gone)

    def die(self) -> None:
        member = self.chance.choice(self.members)
        self.end_session(member.locks)
        for id_ in member.waiting:
            del self.waiting_since[id_]
        self.held = {id_: held for id_, held in self.held.items() if held.member is not member}
        self.members[self.members.index(member)] = self.new_member()

    # All of it

    def run(self, steps: int) -> None:
        """Act at random, then serve all that wait, by notices only; nothing may be left."""
        often = [self.enter] * 24 + [self.release] * 18 + [self.leave] * 12 + [self.look] * 30
        acts = [*often, *[self.hand_over] * 2, self.break_all, self.die]
        for _ in range(steps):
            self.chance.choice(acts)()
        self.drain()
        info = self.members[0].locks.inspect("k", kind=self.kind)
        assert (info.holders, info.waiters) == ((), ())

    def drain(self) -> None:
        while self.held or self.waiting_since:
            while self.held:
                self.release()
            if self.waiting_since:
                wait_until(lambda: bool(self.called()), 10.0, "a waiter being woken")
            for member, claim in self.called():
                member.woken.discard(claim.id)
                self.took(member, claim, run(member.verbs.look(claim, member.until)))

    def called(self) -> list[tuple[Member, Claim]]:
        """Those who wait and were told to look."""
        return [
            (member, claim)
            for member in self.members
            for claim in list(member.waiting.values())
            if claim.id in member.woken
        ]
