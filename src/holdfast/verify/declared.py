"""An engine's declared guarantees beside what was seen of them."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any, Literal

from holdfast.verify.promises import CLIENT_FAULTS, DIVIDING, FORGETFUL, SERVER_CLOCK

Seen = Literal["kept", "broken", "not tested", "not promised"]


@dataclass(frozen=True, slots=True)
class Declared:
    """One guarantee: what the engine says, and how that stood the test."""

    guarantee: str
    says: str
    seen: Seen
    by: str
    """By what it was tested, or why not."""

    def as_dict(self) -> dict[str, Any]:
        """The same as plain data, for JSON."""
        return {"guarantee": self.guarantee, "declared": self.says, "state": self.seen, "by": self.by}


@dataclass(frozen=True, slots=True)
class Trial:
    """How a guarantee is put to the test: under which faults, and by which claims. No faults: under any."""

    faults: frozenset[str]
    claims: tuple[str, ...]


TRIALS: dict[str, Trial] = {
    "consensus": Trial(DIVIDING, ("exclusion", "tokens", "updates", "cells", "progress")),
    "durable": Trial(FORGETFUL, ("exclusion", "tokens", "updates", "cells", "order")),
    "leased": Trial(CLIENT_FAULTS, ("exclusion", "progress", "leaks")),
    "fair": Trial(frozenset(), ("order",)),
    "fencing": Trial(frozenset(), ("tokens", "fence", "updates")),
    "clock": Trial(frozenset({"clock", "clock-jump"}) | SERVER_CLOCK, ("exclusion", "progress")),
}
ELSEWHERE = {
    "notified": "the conformance suite counts the requests of a waiter",
    "deadlock_detection": "the conformance suite makes deadlocks",
}


def compare(guarantees: Mapping[str, Any], states: Mapping[str, str], struck: Set[str]) -> tuple[Declared, ...]:
    """Each guarantee, kept, broken or not tested; one that is not given cannot be broken."""
    if not guarantees:
        return ()
    return tuple(_one(name, trial, guarantees, states, struck) for name, trial in TRIALS.items()) + tuple(
        Declared(name, _says(guarantees.get(name)), "not tested" if guarantees.get(name) else "not promised", by)
        for name, by in ELSEWHERE.items()
    )


def _says(value: object) -> str:
    return value if isinstance(value, str) else "yes" if value else "no"


def _one(
    name: str, trial: Trial, guarantees: Mapping[str, Any], states: Mapping[str, str], struck: Set[str]
) -> Declared:
    says = _says(guarantees.get(name))
    if says == "no":
        return Declared(name, says, "not promised", "the engine says so itself")
    faults = sorted(trial.faults & struck)
    if trial.faults and not faults:
        return Declared(name, says, "not tested", f"none of {', '.join(sorted(trial.faults))} struck")
    found = {claim: states[claim] for claim in trial.claims if states.get(claim) in ("kept", "broken")}
    if not found:
        return Declared(name, says, "not tested", f"nothing was seen of {', '.join(trial.claims)}")
    broken = [claim for claim, state in found.items() if state == "broken"]
    under = f" under {', '.join(faults)}" if faults else ""
    if broken:
        return Declared(name, says, "broken", f"{', '.join(broken)}{under}")
    return Declared(name, says, "kept", f"{', '.join(found)}{under}")
