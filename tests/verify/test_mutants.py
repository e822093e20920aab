"""The verifier catches an engine that breaks a promise, each within a short run."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.verify.targets.redis import RedisTarget
from tests.verify.plugins import install
from tests.verify.runs import broken, judged, perform, told

MUTANTS = "tests.verify.mutants"


class Forgetful(RedisTarget):
    """A Redis that keeps nothing, under an engine that counts from one."""

    name = "forgetful"
    scheme = "forgetful"
    options = ()


@pytest.mark.parametrize(
    ("engine", "workload", "faults", "claims"),
    [
        ("ReleasesAnyoneEngine", "semaphore", "none", {"exclusion"}),
        ("RenewsTheDeadEngine", "mutex", "pause-client", {"exclusion"}),
        ("KeepsTheDeadEngine", "line", "kill-client", {"progress", "leaks"}),
        ("SkipsTheLineEngine", "line", "none", {"order"}),
    ],
)
def test_a_mutant_of_the_embedded_engine_is_caught(
    engine: str, workload: str, faults: str, claims: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, mutant=f"{MUTANTS}:{engine}")

    # A pause finds a holder and outlasts its ttl; the first one may find a session that was not renewed yet. A kill may
    # find somebody who has nothing: one of several does not.
    seconds = 3.0 if faults == "none" else 6.0
    url = f"mutant:///{tmp_path}/locks.db"
    done = perform(url, tmp_path / "run", workload, faults, seconds=seconds, ttl=1.0, within=4.0)

    assert broken(judged(done)) & claims, told(judged(done))


@pytest.mark.parametrize(
    ("engine", "workload", "claim"),
    [
        ("RecreatesOnRenewal", "mutex", "progress"),
        ("ForgetsToRelease", "mutex", "released"),
        ("IgnoresVersions", "cell", "cells"),
        ("GivesOnePermitMore", "semaphore", "exclusion"),
    ],
)
def test_a_spoilt_lock_table_is_caught(
    engine: str, workload: str, claim: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, mutant=f"tests.verify.spoilt_tables:{engine}")

    done = perform(f"mutant:///{tmp_path}/locks.db", tmp_path / "run", workload, ttl=1.0, seconds=2.0, within=4.0)

    assert claim in broken(judged(done)), told(judged(done))


def test_tokens_that_are_forgotten_at_a_restart_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, forgetful=f"{MUTANTS}:ForgetfulEngine")

    done = perform(Forgetful(tmp_path / "run"), tmp_path / "run", "mutex", "restart-server")

    assert "tokens" in broken(judged(done)), told(judged(done))


@pytest.mark.parametrize("faults", ["none", "pause-client,kill-client"])
def test_the_engine_that_they_are_mutants_of_breaks_nothing(faults: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"

    found = judged(perform(url, tmp_path / "run", "mutex,semaphore,line", faults, ttl=1.0, within=20.0))

    assert found.result == "kept", told(found)
