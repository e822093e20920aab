"""Every engine that the verifier can start keeps its promises while faults strike.

A few seconds each in `make test`; `make torture` gives each a minute, and a seed of its own.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from holdfast.verify.faults import FAULTS
from holdfast.verify.storm import TOO_SHORT
from holdfast.verify.target import Target
from holdfast.verify.targets import TARGETS, make_target
from holdfast.verify.workloads import WORKLOADS
from tests.verify.runs import SEED, judged, perform, told

SECONDS = float(os.environ.get("HOLDFAST_VERIFY_SECONDS", "3"))
THOROUGH = "HOLDFAST_VERIFY_SECONDS" in os.environ
CLIENTS = 6 if THOROUGH else 4
TTL = None if THOROUGH else 1.0
"""A fault outlasts it: with a short one, more of them fit into a few seconds. Not where servers need longer."""


@pytest.mark.parametrize("target", TARGETS)
def test_every_promise_is_kept_while_faults_strike(target: str, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1_000_000) if THOROUGH else SEED

    (tmp_path / "run").mkdir()
    made = make_target(target, tmp_path / "run")
    done = perform(
        made,
        tmp_path / "run",
        ",".join(WORKLOADS),
        "all",
        seconds=SECONDS,
        clients=CLIENTS,
        seed=seed,
        controls=THOROUGH,
        ttl=TTL if made.ttl == Target.ttl else None,
    )

    found = judged(done)
    again = f"holdfast verify {target} --seconds {SECONDS:g} --clients {CLIENTS} --seed {seed}"
    assert found.result == "kept", f"{again}\n{told(found)}"
    # Whatever was asked for has struck, or cannot.
    assert TOO_SHORT not in done.not_tested.values()
    assert set(done.struck) | (set(done.not_tested) & set(FAULTS)) == set(FAULTS)
    assert set(done.workloads) | (set(done.not_tested) & set(WORKLOADS)) == set(WORKLOADS)
