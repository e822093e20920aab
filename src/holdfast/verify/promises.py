"""What an engine promises of each claim, given its declared guarantees and the faults that struck."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any

from holdfast.verify.checkers import cells, exclusion, fence, leaks, order, progress, released, tokens, updates
from holdfast.verify.finding import Finding
from holdfast.verify.history import Fault, History

Facts = Mapping[str, Any]
"""`Guarantees.as_dict()` of the engine."""

FORGETFUL = frozenset({"kill-server", "restart-server", "disk-full", "fsync"})
"""What an engine that is not durable may forget its grants by."""
SEVERING = frozenset({"cut", "stall", "drop-replies"})
"""What lets a holder and its engine lose sight of each other."""
DIVIDING = frozenset({"partition", "kill-leader", "pause-leader", "restart-leader"})
"""What makes another node take over."""
SERVER_CLOCK = frozenset({"server-clock", "server-clock-jump"})
CLIENT_FAULTS = frozenset({"pause-client", "kill-client"}) | SEVERING


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim: who checks it, and when it is promised."""

    name: str
    sentence: str
    """What is true if it was kept."""
    check: Callable[[History], Finding]
    doubt: Callable[[Facts, Set[str]], str]
    """Why it is not promised under these faults; empty if it is."""


def always(guarantees: Facts, struck: Set[str]) -> str:
    """Promised by every engine under every fault."""
    return ""


def memory_kept(guarantees: Facts, struck: Set[str]) -> str:
    """Promised while the engine does not lose what it has granted."""
    lossy = sorted(struck & FORGETFUL)
    if lossy and not guarantees.get("durable"):
        return f"the engine is not durable: {', '.join(lossy)} may make it forget"
    divided = sorted(struck & DIVIDING)
    if divided and not guarantees.get("consensus"):
        return f"the engine has no consensus: {', '.join(divided)} may divide it"
    if SERVER_CLOCK & struck and guarantees.get("clock") == "wall":
        return "the engine's time is the server's wall clock, which was moved"
    return ""


def excluded(guarantees: Facts, struck: Set[str]) -> str:
    """Promised while the engine remembers, and does not let go before the holder knows."""
    apart = sorted(struck & (SEVERING | FORGETFUL | DIVIDING | {"pause-server"}))
    if apart and not guarantees.get("leased"):
        return f"the engine has no lease: after {', '.join(apart)} it lets go before the holder knows"
    return memory_kept(guarantees, struck)


def fair(guarantees: Facts, struck: Set[str]) -> str:
    """Promised by fair engines while they remember the line."""
    return memory_kept(guarantees, struck) if guarantees.get("fair") else "the engine is not fair"


def fenced(guarantees: Facts, struck: Set[str]) -> str:
    """Promised always, unless tokens rest on a clock that was moved."""
    if SERVER_CLOCK & struck and guarantees.get("fencing") != "strict":
        return "tokens rest on the server's clock, which was moved"
    return ""


def counted_twice(history: History, before: float) -> str:
    """Why two primaries may have counted tokens at the same time up to a moment; empty if they cannot have.

    A server that was killed, and forgot its tokens, is no second primary. Nor are servers that do not
    know each other: a partition that cuts off clients alone makes none of them a primary.
    """
    if history.run.guarantees.get("consensus"):
        return ""
    faults = tuple(fault for fault in history.faults if not fault.details.get("clients_only"))
    dividing = sorted(struck(replace(history, faults=faults), before) & DIVIDING)
    if not dividing:
        return ""
    return f"after {', '.join(dividing)} there may be two primaries, and each counts tokens by itself"


def never(guarantees: Facts, struck: Set[str]) -> str:
    """What a lock alone cannot promise."""
    return "without a fence a holder that pauses between its last look and its write overwrites the next one's"


CLAIMS: dict[str, Claim] = {
    claim.name: claim
    for claim in (
        Claim(exclusion.CLAIM, "no two held what excludes each other", exclusion.check, excluded),
        Claim(tokens.CLAIM, "tokens only grew", tokens.check, fenced),
        Claim(fence.CLAIM, "the fence accepted no older holder after a newer one", fence.check, fenced),
        Claim(updates.CLAIM, "no fenced update was lost", updates.check, fenced),
        Claim(order.CLAIM, "nobody was overtaken in line", order.check, fair),
        Claim(progress.CLAIM, "after the last fault everything went on", progress.check, always),
        Claim(leaks.CLAIM, "nothing was left held or in line", leaks.check, always),
        Claim(released.CLAIM, "what was given back was gone", released.check, memory_kept),
        Claim(cells.CLAIM, "cells were linearizable", cells.check, memory_kept),
        Claim(updates.UNFENCED, "no update without a fence was lost", updates.check_unfenced, never),
    )
}


def struck(history: History, before: float = float("inf")) -> frozenset[str]:
    """The names of the faults that really struck, as the command line calls them, up to a moment."""
    names = set()
    for fault in history.faults:
        if fault.start > before:
            continue
        name = str(fault.details.get("fault") or _name(fault, history.processes))
        names.add(name)
        if fault.details.get("leader"):
            names.add(name.replace("-server", "-leader"))
    return frozenset(names)


def _name(fault: Fault, clients: Set[str]) -> str:
    if fault.what in ("pause", "kill", "restart"):
        return f"{fault.what}-{'client' if fault.target in clients else 'server'}"
    if fault.what == "clock" and fault.target not in clients:
        return "server-clock"
    return fault.what
