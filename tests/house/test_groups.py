"""Tests that share a server share a worker: otherwise each worker would start it again, and nobody would notice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_a_worker_is_told_the_group_of_a_test() -> None:
    """In a run of its own; the test that is run is the next one."""
    options = ["--numprocesses", "1", "--dist", "loadgroup", "-p", "no:cacheprovider", "-vv"]
    name = "tests/house/test_groups.py::test_that_is_run_by_the_one_before"
    done = subprocess.run([sys.executable, "-m", "pytest", *options, name], cwd=ROOT, capture_output=True, text=True)

    assert f"{name}@tests/house/test_groups.py" in done.stdout, done.stdout + done.stderr


def test_that_is_run_by_the_one_before() -> None:
    assert ROOT.is_dir()
