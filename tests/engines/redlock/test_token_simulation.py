"""Tokens of Redlock under expiry: thousands of random runs, in which every step of every client may come late."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from holdfast.core import quorum

RUNS = 2_000
NODES, CLIENTS, STEPS, TTL = 5, 4, 600, 30.0


@dataclass(frozen=True)
class Rule:
    """How a token is confirmed. Each part that is left out breaks it."""

    written_back: bool = True
    only_if_held: bool = True
    only_if_not_higher: bool = True


@dataclass
class Node:
    """What one node does, as its scripts do it. Its clock for tokens is slow, so that counting matters."""

    skew: int
    last: int = 0
    claim: str = ""
    expires: float = 0.0
    token: int = 0

    def enter(self, claim: str, now: float, hoped: int) -> int | None:
        clock = int(now / 20) + self.skew
        if self.expires > now and self.claim != claim:
            return None
        if self.expires <= now or self.claim != claim:
            number = max(self.last + 1, clock)
            if number < hoped <= clock + 3:
                number = hoped
            self.last = self.token = number
            self.claim = claim
        self.expires = now + TTL
        return self.token

    def holds(self, claim: str, now: float) -> bool:
        return self.expires > now and self.claim == claim

    def confirm(self, claim: str, now: float, token: int, rule: Rule) -> bool:
        if rule.only_if_held and not self.holds(claim, now):
            return False
        if rule.only_if_not_higher and self.holds(claim, now) and self.token > token:
            return False
        self.last = max(self.last, token)
        if self.holds(claim, now):
            self.token = token
        return True

    def release(self, claim: str) -> None:
        if self.claim == claim:
            self.expires = 0.0


@dataclass
class World:
    """Nodes, time, and the grants that were made."""

    seed: int
    rule: Rule = Rule()
    clocks_work: bool = True
    now: float = 0.0
    grants: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.nodes = [Node(self.chance.randrange(3)) for _ in range(NODES)]
        self.hoped = 0

    def run(self) -> list[int]:
        clients = [self.client(number) for number in range(CLIENTS)]
        for _ in range(STEPS):
            next(self.chance.choice(clients))
            # Mostly little time passes between two steps; now and then locks expire meanwhile.
            self.now += self.chance.uniform(5.0, 45.0) if self.chance.random() < 0.04 else self.chance.uniform(0.0, 0.4)
        return self.grants

    def client(self, number: int) -> Iterator[None]:
        tries = 0
        while True:
            tries += 1
            claim = f"{number}-{tries}"
            yield from self.attempt(claim)
            for node in self.shuffled():
                yield
                if self.chance.random() < 0.9:
                    node.release(claim)

    def shuffled(self) -> list[Node]:
        return self.chance.sample(self.nodes, NODES)

    def attempt(self, claim: str) -> Iterator[None]:
        started, proposals = self.now, []
        hoped = self.hoped + 1 if self.chance.random() < 0.5 else 0
        for node in self.shuffled():
            yield
            proposal = node.enter(claim, self.now, hoped)
            # Some answers are lost: the node has granted, and the client does not know.
            if proposal is not None and self.chance.random() < 0.9:
                proposals.append(proposal)
        if not quorum.reached(len(proposals), NODES):
            return
        token = quorum.token_of(proposals)
        if self.rule.written_back and not quorum.confirmed(proposals, NODES):
            votes = 0
            for node in self.shuffled():
                yield
                votes += node.confirm(claim, self.now, token, self.rule)
            if not quorum.reached(votes, NODES):
                return
        if self.clocks_work and quorum.left(TTL, started, self.now) <= 0:
            return
        self.hoped = max(self.hoped, token)
        self.grants.append(token)
        for _ in range(self.chance.randrange(12)):
            yield


def repeated(world: World) -> bool:
    grants = world.run()
    return len(set(grants)) != len(grants)


def test_no_token_is_given_twice_in_two_thousand_runs() -> None:
    """Even where nobody notices that a lock has expired: clients may have been stopped at any step."""
    granted = 0
    for seed in range(RUNS):
        world = World(seed, clocks_work=False)
        assert not repeated(world), f"World({seed}, clocks_work=False) gave a token twice: {world.grants}"
        granted += len(world.grants)
    assert granted > RUNS


def test_tokens_grow_as_long_as_clocks_work() -> None:
    for seed in range(RUNS):
        grants = World(seed).run()
        assert grants == sorted(set(grants)), f"World({seed}) went back: {grants}"


@pytest.mark.parametrize(
    "rule",
    [Rule(written_back=False), Rule(only_if_held=False)],
    ids=["nothing is written back", "also where the claim is gone"],
)
def test_the_simulation_finds_what_it_looks_for(rule: Rule) -> None:
    assert any(repeated(World(seed, rule, clocks_work=False)) for seed in range(RUNS))


def overtaken(rule: Rule) -> tuple[int, int | None]:
    """One claim is overtaken at the first node, and enters the second late, unheard: the two tokens.

    Too rare for chance to find it: it takes three delays that fit together.
    """
    first, second, third, fourth, fifth = (Node(skew) for skew in (0, 0, 0, 5, 98))
    heard = [first.enter("late", 0.0, 0), fourth.enter("late", 20.0, 0), fifth.enter("late", 20.0, 0)]
    # The first node forgets the claim. Another one takes it, with two more, and is given 99 as well.
    for node in (first, second, third):
        assert node.enter("quick", 31.0, 0) is not None
        assert node.confirm("quick", 31.0, 99, rule)
    second.release("quick")
    # The request to the second node arrives now, and its answer is lost.
    assert (second.enter("late", 34.0, 0) or 0) > 99
    proposals = [proposal for proposal in heard if proposal is not None]
    token = quorum.token_of(proposals)
    votes = sum(node.confirm("late", 40.0, token, rule) for node in (first, second, third, fourth, fifth))
    return 99, token if quorum.reached(votes, NODES) else None


def test_a_node_that_proposed_a_higher_token_unheard_does_not_confirm_a_lower_one() -> None:
    assert overtaken(Rule(only_if_not_higher=False)) == (99, 99)
    assert overtaken(Rule()) == (99, None)
