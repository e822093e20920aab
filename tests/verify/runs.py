"""Short runs of the verifier, judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.verify.faults import choose
from holdfast.verify.performance import Performance
from holdfast.verify.stage import Order, Stage
from holdfast.verify.target import Target
from holdfast.verify.targets import make_target
from holdfast.verify.verdict import Verdict, judge

SEED = 7


def perform(target: Target | str, folder: Path, workloads: str, faults: str = "none", **more: Any) -> Performance:
    """Run these workloads under these faults."""
    folder.mkdir(exist_ok=True)
    made = make_target(target, folder) if isinstance(target, str) else target
    facts: dict[str, Any] = {"seconds": 3.0, "clients": 4, "seed": SEED, "controls": False, **more}
    order = Order(tuple(workloads.split(",")), tuple(choose(faults.split(","))), **facts)
    return Stage(made, order, folder).perform()


def judged(done: Performance) -> Verdict:
    """What the judge says of a run."""
    return judge(done.histories(), done.not_tested, done.surprises, done.late)


def broken(found: Verdict) -> set[str]:
    """The promises that were broken."""
    return {row.claim for row in found.rows if row.bad}


def told(found: Verdict) -> str:
    """The stories of what went wrong, for a failing test."""
    stories = ["\n".join(row.story()) for row in found.rows if row.bad]
    return "\n\n".join([found.paragraph(), *stories, *found.surprises])
