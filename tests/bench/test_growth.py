"""The benchmark of growth runs on real servers, at a small size; what it finds is not judged here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.growth import AXES, ENGINES

ROOT = Path(__file__).resolve().parents[2]


def growth(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench.growth", "--seconds", "0.1", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("engine", ["holdfast", "redis", "sqlite"])
def test_every_axis_has_figures_of_client_and_server(engine: str) -> None:
    done = growth("--json", "--engine", engine, "--sizes", "3")

    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    axes = [axis for axis in AXES if ENGINES[engine].most.get(axis) != 0]
    assert [(row["axis"], row["size"]) for row in rows] == [(axis, 3) for axis in axes]
    assert [row["problem"] for row in rows] == [""] * len(rows)
    assert all(row["point"]["operations"] > 0 and row["point"]["client"] > 0 for row in rows)
    # The kernel counts in ticks of 10 ms, and a heartbeat of few locks takes less.
    assert (sum(row["point"]["server"] for row in rows) > 0) == (engine != "sqlite")


def test_a_point_that_takes_too_long_is_a_line_with_the_reason() -> None:
    done = growth("--engine", "sqlite", "--axis", "own", "--sizes", "20000", "--limit", "0.01")

    assert done.returncode == 0, done.stderr
    assert "20,000" in done.stdout
    assert "not ready within 0.01 s" in done.stdout


def test_make_reaches_it_and_the_command() -> None:
    def recipe(arguments: str) -> str:
        command = ["make", "--dry-run", "--silent", "bench", f"ARGS={arguments}"]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert "python -m bench.growth --engine redis" in recipe("growth --engine redis")
    assert "holdfast bench redis://127.0.0.1" in recipe("redis://127.0.0.1")
