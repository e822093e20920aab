"""Every engine that the verifier can start keeps its promises while faults strike.

A few seconds each in `make test`; `make torture` gives each a minute, and a seed of its own.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from holdfast.verify.faults import FAULTS
from holdfast.verify.targets import TARGETS
from holdfast.verify.workloads import WORKLOADS
from tests.verify.runs import SEED, judged, perform, told

SECONDS = float(os.environ.get("HOLDFAST_VERIFY_SECONDS", "5"))
THOROUGH = "HOLDFAST_VERIFY_SECONDS" in os.environ
CLIENTS = 6 if THOROUGH else 4


@pytest.mark.parametrize("target", TARGETS)
def test_every_promise_is_kept_while_faults_strike(target: str, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1_000_000) if THOROUGH else SEED

    done = perform(
        target,
        tmp_path / "run",
        ",".join(WORKLOADS),
        "all",
        seconds=SECONDS,
        clients=CLIENTS,
        seed=seed,
        controls=THOROUGH,
    )

    found = judged(done)
    again = f"holdfast verify {target} --seconds {SECONDS:g} --clients {CLIENTS} --seed {seed}"
    assert found.result == "kept", f"{again}\n{told(found)}"
    # Whatever was asked for has struck, or it is said why not.
    assert set(done.struck) | (set(done.not_tested) & set(FAULTS)) == set(FAULTS)
    assert set(done.workloads) | (set(done.not_tested) & set(WORKLOADS)) == set(WORKLOADS)
