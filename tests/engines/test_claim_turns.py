"""The turns of one client's claims on a name: in order of arrival, never too many, and none is forgotten."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import pytest

from holdfast.engines.claim_turns import ClaimTurns, NameTurns
from tests.faults.injection import Injected, Moments, count_moments

CLAIMS = "abcd"
DEPTH = 6


class Told:
    """What claims do and are told, in one order of events."""

    def __init__(self, most: int) -> None:
        self.most, self.turns = most, NameTurns()
        self.arrived: list[str] = []
        self.having: list[str] = []
        self.came: set[str] = set()

    def look(self, claim: str) -> None:
        if claim not in self.arrived:
            self.arrived.append(claim)
        first = [each for each in self.arrived if each not in self.having][:1]
        expected = claim in self.having or (first == [claim] and len(self.having) < self.most)
        assert self.turns.admit(claim, self.most) == expected
        if expected:
            self.came.add(claim)
            if claim not in self.having:
                self.having.append(claim)

    def end(self, claim: str) -> None:
        for known in (self.arrived, self.having):
            if claim in known:
                known.remove(claim)
        self.came.discard(claim)
        waiting = [each for each in self.arrived if each not in self.having]
        self.having += waiting[: self.most - len(self.having)]
        expected = {each for each in self.having if each not in self.came}
        assert set(self.turns.end(claim, self.most)) == expected

    def check(self) -> None:
        assert len(self.having) <= self.most
        assert set(self.turns.all()) == set(self.arrived)
        assert len(self.turns) == len(self.arrived)
        for claim in self.arrived:
            assert claim in self.turns
        waits = [each for each in self.arrived if each not in self.having]
        assert self.turns.waiting() == (waits[0] if waits else None)
        assert not waits or len(self.having) == self.most, "a claim waits although there is a turn for it"


def after(told: Told, depth: int) -> Iterator[Told]:
    yield told
    if depth:
        for claim in CLAIMS:
            for act in ("look", "end"):
                following = copy.deepcopy(told)
                getattr(following, act)(claim)
                yield from after(following, depth - 1)


@pytest.mark.parametrize("most", [1, 2])
def test_in_every_order_of_events_turns_go_to_the_earliest_and_none_is_forgotten(most: int) -> None:
    seen = 0
    for told in after(Told(most), DEPTH - 2):
        told.check()
        seen += 1
    assert seen > 4_000


def in_use() -> ClaimTurns:
    turns = ClaimTurns()
    for claim in "abc":
        turns.admit("k", claim)
    return turns


ACTS: dict[str, tuple[str, Callable[[ClaimTurns], object]]] = {
    "the first one leaves": ("a", lambda turns: turns.end("k", "a")),
    "one that waits leaves": ("b", lambda turns: turns.end("k", "b")),
    "one comes": ("d", lambda turns: turns.admit("k", "d")),
    "one gets its turn at once": ("c", lambda turns: turns.take("k", "c")),
    "one comes in the place of another": ("ad", lambda turns: turns.replace("k", "a", "d")),
}


@pytest.mark.parametrize("act", ACTS)
def test_an_interrupt_at_any_moment_forgets_no_claim_that_waits(act: str) -> None:
    """The interrupted call withdraws its claim, as often as it takes; that wakes the one whose turn it is."""
    claims, work = ACTS[act]
    counted = in_use()
    moments = count_moments(lambda: work(counted))
    assert moments
    for at in range(moments):
        turns = in_use()
        with pytest.raises(Injected):
            Moments(at, Injected).run(lambda turns=turns: work(turns))  # type: ignore[misc]
        woken: set[str] = set()
        # The first one had looked already: it leaves by itself, as all others do that are woken.
        for each in (*claims, "a"):
            woken.update(turns.end("k", each))
        for _ in range(len("bc")):
            following = turns.sent("k")
            assert following is None or following in woken, f"{following} is not woken: interrupted at {at}"
            if following is not None:
                assert turns.admit("k", following)
                woken.update(turns.end("k", following))
        assert (turns.count("k"), turns.waiting("k")) == (0, None)
