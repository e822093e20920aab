"""`holdfast verify`, as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.verify.plugins import install

SHORT = ("--seconds", "3", "--clients", "3", "--seed", "4", "--ttl", "1")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holdfast.cli.main", "verify", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=110)


def states(told: dict[str, Any]) -> dict[str, str]:
    return {row["claim"]: row["state"] for row in told["claims"]}


def test_a_target_that_keeps_its_promises_ends_with_0_and_a_report(tmp_path: Path) -> None:
    page, kept = tmp_path / "report.html", tmp_path / "histories"

    done = run("sqlite", *SHORT, "--faults", "pause-client,cut", "--workloads", "mutex,protected", "--json",
               "--report", str(page), "--keep", str(kept))  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["result"] == "kept"
    assert {states(told)[claim] for claim in ("exclusion", "tokens", "updates", "progress", "leaks")} == {"kept"}
    assert all(control["caught"] for control in told["controls"])
    assert told["struck"]["pause-client"] >= 1
    assert "no proxy can stand" in told["left_out"]["cut"]
    assert told["command"].startswith("holdfast verify sqlite --seed 4")
    assert page.read_text().startswith("<!")
    assert (kept / "mutex" / "c1.jsonl").exists()


def test_a_broken_promise_ends_with_1_and_its_story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, mutant="tests.verify.mutants:ReleasesAnyoneEngine")

    done = run(
        f"mutant:///{tmp_path}/locks.db", *SHORT, "--faults", "none", "--workloads", "semaphore", "--no-controls"
    )

    assert done.returncode == 1, done.stdout + done.stderr
    assert "both held 'verify/semaphore'" in done.stdout
    assert "again: holdfast verify" in done.stdout


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (("floppy",), "an engine URL, or one of sqlite, redis"),
        (("sqlite", "--faults", "earthquake"), "all, none, or some of pause-client"),
        (("sqlite", "--workloads", "nap"), "all, or some of mutex"),
        (("sqlite", "--ttl", "0"), "ttl=0.0: it is at least 0.1 s"),
        (("sqlite", "--ttl", "10ms"), "ttl=0.01: it is at least 0.1 s"),
        # Its clients would not exclude each other, and nothing is broken by that.
        (("memory://",), "each process has a memory:// of its own"),
    ],
)
def test_what_nobody_knows_is_refused_before_anything_starts(words: tuple[str, ...], rule: str) -> None:
    done = run(*words)

    assert done.returncode == 2
    assert rule in " ".join(done.stderr.split())


def test_a_workload_that_is_named_twice_runs_once() -> None:
    done = run("sqlite", *SHORT, "--faults", "none", "--workloads", "mutex,mutex", "--no-controls", "--json")

    assert done.returncode == 0, done.stderr
    assert states(json.loads(done.stdout))["exclusion"] == "kept"


def test_a_server_that_is_not_installed_is_named_with_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.verify.servers.process import ServerMissing, find

    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ServerMissing, match="etcd-that-is-nowhere is not installed"):
        find("etcd-that-is-nowhere")
    assert ServerMissing("initdb").package == "postgresql"
