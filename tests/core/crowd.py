"""A crowd of sessions that do anything to a lock table, while the reference model watches every step."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.core.table import Dictionary, Outcome, apply
from holdfast.core.table import commands as cmd
from holdfast.core.table.changes import Change, DropRow
from holdfast.core.table.rows import Session
from holdfast.model import Claim, Gone, Granted, Mode, Place
from tests.core.reference import Entry, Reference, exclude, stuck

TTLS = (3.0, 5.0, 8.0)
NAMES = ("a", "a/b", "a/b/c", "a/d", "ab", "e")
MODES: tuple[Mode, ...] = ("exclusive", "shared")
numbers = st.integers(0, 1_000)
ttls = st.sampled_from(TTLS)
owners = st.sampled_from("xy")
holds = st.sampled_from((None, None, None, 2.0, 6.0))

locks = st.fixed_dictionaries(
    {
        "number": numbers,
        "owner": owners,
        "kind": st.just("lock"),
        "name": st.sampled_from((*NAMES, *NAMES[:2])),
        "mode": st.sampled_from(MODES),
        "subtree": st.booleans(),
        "reentrant": st.booleans(),
        "max_hold": holds,
        "waits": st.sampled_from((True, True, True, False)),
    }
)
permits = st.fixed_dictionaries(
    {
        "number": numbers,
        "owner": owners,
        "kind": st.just("permit"),
        "name": st.sampled_from("pq"),
        "limit": st.sampled_from((2, 2, 2, 2, 3)),
        "max_hold": holds,
        "waits": st.sampled_from((True, True, True, False)),
    }
)
requests = st.one_of(locks, locks, permits)


def swept(table: Dictionary, now: float) -> Dictionary:
    """The table after somebody has cleared away all that is dead, a little at a time."""
    while True:
        reply = apply(cmd.Sweep(2), now, table.answer, table.put).reply
        assert isinstance(reply, cmd.Done)
        if not reply.more:
            return table


def replayed(changes: list[Change]) -> Dictionary:
    """A fresh table that took these changes."""
    table = Dictionary()
    for change in changes:
        table.put(change)
    return table


class Crowd(RuleBasedStateMachine):
    """Random commands on the table in memory. What each comes to is checked against the rules."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Dictionary()
        self.reference = Reference()
        self.changes: list[Change] = []
        self.claims: list[Claim] = []
        """Everything that was ever asked for and not given back since."""
        self.sessions: list[str] = []
        self.ids = 0

    def run_step(self, command: cmd.Command) -> Outcome:
        """One command on the table under test."""
        return apply(command, self.reference.now, self.table.answer, self.table.put, wall=self.reference.now)

    def send(self, command: cmd.Command) -> Any:
        """Run a command and tell the reference whom it granted."""
        outcome = self.run_step(command)
        self.changes += outcome.changes
        for change in outcome.changes:
            if isinstance(change, DropRow):
                row = change.row
                entry = self.reference.entries.get(row.id)
                if entry is not None and not self.reference.alive(entry):
                    del self.reference.entries[row.id]
                    if self.reference.lives(row.claim.session):
                        self.reference.taken.add(row.id)
        entered = command.claim if isinstance(command, cmd.Enter) else None
        if entered and isinstance(outcome.reply, Granted | Place) and entered.id not in self.reference.entries:
            self.reference.admit(entered)
        if not isinstance(command, cmd.Adopt | cmd.Break | cmd.Release | cmd.Leave):
            self.note_grants()
        return outcome.reply

    def note_grants(self) -> None:
        for entry in self.reference.living():
            row = self.table.rows.get(entry.claim.id)
            if row is not None and row.token is not None and entry.token is None:
                self.reference.granted(entry, row.token)

    def pick(self, number: int) -> Claim:
        return self.claims[number % len(self.claims)]

    def session(self, number: int) -> str:
        """A session, mostly one that lives."""
        living = [id_ for id_ in self.sessions if self.reference.lives(id_)]
        some = living if living and number % 10 else self.sessions
        return some[number % len(some)]

    def new_claim(self, number: int, owner: str, kind: str, name: str, **rest: Any) -> Claim:
        session = self.session(number)
        self.ids += 1
        return Claim(f"{session}-{self.ids}", session, f"{session}/{owner}", kind, name, **rest)

    # Sessions and time

    @initialize()
    def begin(self) -> None:
        for ttl in TTLS:
            self.open(ttl)

    @precondition(lambda self: len(self.sessions) < 6)
    @rule(ttl=ttls)
    def open(self, ttl: float) -> None:
        id_ = f"s{len(self.sessions) + 1}"
        assert self.send(cmd.Open(Session(id_, ttl, 0.0))) == cmd.Opened(ttl)
        self.sessions.append(id_)
        self.reference.ttls[id_] = ttl
        self.reference.ends[id_] = self.reference.now + ttl

    @rule(number=numbers)
    def renew(self, number: int) -> None:
        self.keep(self.session(number))

    def keep(self, id_: str) -> None:
        alive = self.reference.lives(id_)
        if alive:
            self.reference.ends[id_] = self.reference.now + self.reference.ttls[id_]
        reply = self.send(cmd.Renew(id_))
        assert isinstance(reply, cmd.Renewed if alive else cmd.SessionOver)

    @rule(seconds=st.sampled_from((0.5, 1.0, 2.0, 3.0)), number=numbers)
    def pass_time(self, seconds: float, number: int) -> None:
        """Time passes, and all but one of the sessions that can be kept alive are."""
        missed = self.session(number)
        for id_ in self.sessions:
            if id_ != missed:
                self.keep(id_)
        self.reference.now += seconds
        self.note_grants()

    @rule()
    def sweep(self) -> None:
        while self.send(cmd.Sweep(2)).more:
            pass

    @precondition(lambda self: len(self.claims) > 5)
    @rule(number=numbers)
    def close(self, number: int) -> None:
        id_ = self.session(number)
        self.reference.ends[id_] = min(self.reference.now, self.reference.ends[id_])
        assert self.send(cmd.Close(id_)) == cmd.Done()

    # Claims

    def ask(self, claim: Claim) -> None:
        expected = self.reference.verdict(claim)
        ahead = sum(
            entry.token is None and (entry.claim.kind, entry.claim.name) == (claim.kind, claim.name)
            for entry in self.reference.living()
        )
        cover = self.reference.cover(claim)
        reply = self.send(cmd.Enter(claim))
        assert type(reply).__name__ == expected, (reply, expected)
        if isinstance(reply, Place):
            # Somebody before it may have been given a dead one's permit by this very step.
            assert reply.position <= ahead + 1 if claim.limit else reply.position == ahead + 1
        if cover is not None:
            assert reply.token == cover.token
        self.claims.append(claim)

    @rule(requests=st.lists(requests, min_size=1, max_size=6))
    def enter(self, requests: list[dict[str, Any]]) -> None:
        for request in requests:
            self.ask(self.new_claim(**request))

    @rule(number=numbers, owner=owners, kind=st.sampled_from(("lock", "permit")), reentrant=st.booleans())
    def enter_where_it_is_full(self, number: int, owner: str, kind: str, reentrant: bool) -> None:
        """Ask for what the crowd is after already: this is how cycles arise."""
        wanted = [entry.claim for entry in self.reference.living() if entry.claim.kind == kind]
        if wanted:
            like = wanted[number % len(wanted)]
            self.ask(
                self.new_claim(
                    number // 7,
                    owner,
                    kind,
                    like.name,
                    mode=like.mode,
                    limit=like.limit,
                    reentrant=reentrant and not like.limit,
                )
            )

    @rule(number=numbers)
    def withdraw_before_it_arrives(self, number: int) -> None:
        claim = self.new_claim(number, "x", "lock", "a")
        if self.reference.lives(claim.session):
            self.reference.withdrawn.add(claim.id)
        assert self.send(cmd.Leave(claim, unanswered=True)) == cmd.Done()
        self.ask(claim)

    @precondition(lambda self: self.claims)
    @rule(number=numbers)
    def enter_again(self, number: int) -> None:
        """A repeat finds how its claim stands; one that was refused or taken away is not revived."""
        claim = self.pick(number)
        entry = self.reference.entries.get(claim.id)
        if entry is None:
            if claim.id in self.reference.withdrawn | self.reference.taken:
                assert type(self.send(cmd.Enter(claim))) in (Gone, cmd.SessionOver)
            return
        reply = self.send(cmd.Enter(claim))
        if not self.reference.lives(claim.session):
            assert isinstance(reply, cmd.SessionOver)
        elif not self.reference.alive(entry):
            assert isinstance(reply, Gone)
        elif self.reference.holds(entry):
            assert reply.token == entry.token
        else:
            assert isinstance(reply, Place)

    @precondition(lambda self: self.claims)
    @rule(number=numbers)
    def look(self, number: int) -> None:
        outcome = self.run_step(cmd.Look(self.pick(number)))
        assert outcome.changes == []

    def drop(self, claim: Claim) -> Entry | None:
        self.claims = [other for other in self.claims if other.id != claim.id]
        entry = self.reference.entries.get(claim.id)
        if entry is not None and (self.reference.lives(claim.session)):
            del self.reference.entries[claim.id]
        return entry

    @precondition(lambda self: self.claims)
    @rule(number=numbers)
    def release(self, number: int) -> None:
        claim = self.pick(number)
        entry = self.reference.entries.get(claim.id)
        valid = entry is not None and self.reference.alive(entry) and entry.token is not None
        broken = claim.id in self.reference.taken
        if entry is None or entry.token is not None:
            self.drop(claim)
        reply = self.send(cmd.Release(claim))
        assert isinstance(reply, cmd.Done if valid and not broken else Gone), reply
        self.note_grants()

    @precondition(lambda self: self.claims)
    @rule(number=numbers, unanswered=st.booleans())
    def leave(self, number: int, unanswered: bool) -> None:
        claim = self.pick(number)
        self.drop(claim)
        if unanswered and self.reference.lives(claim.session):
            self.reference.withdrawn.add(claim.id)
        assert self.send(cmd.Leave(claim, unanswered)) == cmd.Done()
        self.note_grants()
        if claim.id in self.reference.withdrawn:
            assert isinstance(self.send(cmd.Enter(claim)), Gone | cmd.SessionOver)

    # Hands

    @rule(
        where=st.sampled_from([*(("lock", name) for name in NAMES), ("permit", "p"), ("permit", "q")]),
        force=st.booleans(),
    )
    def break_lock(self, where: tuple[str, str], force: bool) -> None:
        living = [entry for entry in self.reference.living() if (entry.claim.kind, entry.claim.name) == where]
        held = [entry for entry in living if entry.token is not None]
        reply = self.send(cmd.Break(*where, force))
        assert set(reply.claims) == {entry.claim.id for entry in held}
        for entry in held:
            self.reference.taken.add(entry.claim.id)
            end = self.reference.now + self.reference.ttls[entry.claim.session]
            entry.dies_at = end if entry.dies_at is None else min(end, entry.dies_at)
            if force:
                del self.reference.entries[entry.claim.id]
        self.note_grants()

    @precondition(lambda self: self.claims)
    @rule(number=numbers)
    def hand_over(self, number: int) -> None:
        claim = self.pick(number)
        entry = self.reference.entries.get(claim.id)
        valid = entry is not None and self.reference.alive(entry) and entry.token is not None
        valid = valid and claim.id not in self.reference.taken  # told to go
        reply = self.send(cmd.HandOver(claim, f"secret of {claim.id}"))
        assert isinstance(reply, cmd.Done if valid else Gone)
        if valid:
            self.reference.tickets[claim.id] = f"secret of {claim.id}"

    @precondition(lambda self: self.reference.tickets)
    @rule(number=numbers, at=numbers, owner=owners)
    def adopt(self, number: int, at: int, owner: str) -> None:
        reference = self.reference
        source, ticket = sorted(reference.tickets.items())[at % len(reference.tickets)]
        entry = reference.entries.get(source)
        like = entry.claim if entry is not None else Claim("", "", "", "lock", "a")
        claim = self.new_claim(
            number, owner, like.kind, like.name, mode=like.mode, subtree=like.subtree, limit=like.limit
        )
        reply = self.send(cmd.Adopt(claim, source, ticket))
        if not reference.lives(claim.session):
            assert isinstance(reply, cmd.SessionOver)
        elif entry is None or not reference.alive(entry) or source in reference.taken:
            assert isinstance(reply, Gone)
        else:
            after = [
                (other.place, claim if other is entry else other.claim)
                for other in reference.living()
                if other is entry or other.place != entry.place or not exclude(other.claim, entry.claim)
            ]
            assert isinstance(reply, cmd.Deadlocked if stuck(after) else Granted)
            if isinstance(reply, Granted):
                reference.hand(entry, claim, reply.token)
                self.claims.append(claim)
                del reference.tickets[source]
        self.note_grants()

    # What has to be true after every step

    @invariant()
    def no_cycle_survives(self) -> None:
        assert stuck([(entry.place, entry.claim) for entry in self.reference.living()]) == set()

    @invariant()
    def a_replay_gives_an_equal_table_in_which_nobody_waits_behind_nothing(self) -> None:
        """Swept, the copy holds exactly what the rules say: no waiter is held up by nothing or by the dead."""
        copy = replayed(self.changes)
        for part in ("sessions", "rows", "counters", "tombstones", "cells", "watches", "mortal", "claims_of"):
            assert getattr(copy, part) == getattr(self.table, part), part
        swept(copy, self.reference.now)
        living = {entry.claim.id for entry in self.reference.living()}
        assert set(copy.rows) == living
        assert {id_ for id_, row in copy.rows.items() if row.token is not None} == self.reference.holders()

    @invariant()
    def conflicting_claims_are_never_granted_together(self) -> None:
        held = [entry for entry in self.reference.living() if entry.token is not None]
        assert {entry.claim.id for entry in held} <= self.reference.holders()
