"""`holdfast demo` tells its story with real processes, and fails loudly when it goes otherwise."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SABOTAGE = "import holdfast.fence.sql\nholdfast.fence.sql.SqlFence.check = {check}\n"


def run_demo(*options: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "holdfast.cli.main", "demo", *options],
        env=os.environ | (environment or {}),
        capture_output=True,
        text=True,
        check=False,
    )


def sabotaged(folder: Path, check: str) -> dict[str, str]:
    """An environment in which every Python process has another `SqlFence.check`."""
    (folder / "sitecustomize.py").write_text(SABOTAGE.format(check=check))
    return {"PYTHONPATH": str(folder)}


@pytest.fixture(scope="module")
def told() -> list[dict[str, Any]]:
    done = run_demo("--json")
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def of(told: list[dict[str, Any]], story: str) -> list[tuple[str, str]]:
    return [(event["who"], event["event"]) for event in told if event.get("story") == story]


def test_with_the_fence_the_late_write_is_refused_and_no_update_is_lost(told: list[dict[str, Any]]) -> None:
    assert of(told, "fenced") == [
        ("A", "granted"),
        ("A", "read"),
        ("A", "stopped"),
        ("B", "queued"),
        ("B", "granted"),
        ("B", "written"),
        ("B", "released"),
        ("A", "woken"),
        ("A", "refused"),
        ("A", "lost"),
        ("A", "written"),
    ]
    assert [event for event in told if event.get("story") == "fenced"][-1]["balance"] == 160


def test_b_has_the_higher_token(told: list[dict[str, Any]]) -> None:
    first, second = (event["token"] for event in told if event["event"] == "granted" and event["story"] == "fenced")

    assert second > first


def test_without_the_fence_the_update_of_b_is_lost(told: list[dict[str, Any]]) -> None:
    assert of(told, "unfenced")[-1] == ("A", "overwrote")
    assert [event for event in told if event.get("story") == "unfenced"][-1]["balance"] == 110


def test_it_takes_less_than_twenty_seconds(told: list[dict[str, Any]]) -> None:
    assert told[-1]["event"] == "shown"
    assert told[-1]["seconds"] < 20


def test_in_a_pipe_it_is_a_plain_timeline_that_ends_with_why() -> None:
    done = run_demo()

    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "A  is REFUSED by the database" in done.stdout
    assert "nothing stops it: B's 50 are gone" in done.stdout
    assert "What you saw: the lock did nothing wrong." in done.stdout


def test_a_fence_that_lets_everything_pass_makes_it_fail_loudly(tmp_path: Path) -> None:
    done = run_demo(environment=sabotaged(tmp_path, "lambda *_, **__: None"))

    assert done.returncode == 1
    assert "THE STORY WENT WRONG (with the fence): A should have been refused, but was written" in done.stderr
    assert "What you saw" not in done.stdout


def test_a_worker_that_dies_makes_it_fail_loudly_with_its_last_words(tmp_path: Path) -> None:
    done = run_demo("--json", environment=sabotaged(tmp_path, "None"))

    last = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 1
    assert (last["event"], last["ok"]) == ("failed", False)
    assert "process B died" in last["problem"]
    assert "TypeError" in last["problem"]
