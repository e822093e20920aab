"""Tests in several processes: those that share a server share a process, and nothing is left out."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORKED = "tests/house/worked.py"


def run(*options: str) -> subprocess.CompletedProcess[str]:
    """A run of its own, by two workers."""
    command = [sys.executable, "-m", "pytest", "--workers", "2", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def test_tests_of_one_engine_run_in_one_process_and_what_they_print_is_told() -> None:
    done = run("-k", "engine", WORKED)

    ran = re.findall(r"^ran (\w+) in (\d+)$", done.stdout, re.MULTILINE)
    assert sorted(name for name, _ in ran) == ["memory"] * 3 + ["sqlite"] * 3, done.stdout + done.stderr
    assert len(set(ran)) == 2
    assert len({pid for _, pid in ran}) == 2
    assert done.stdout.splitlines()[-1].startswith("6 failed")
    assert done.returncode == 1


def test_a_test_whose_process_ends_has_failed_and_the_others_are_run() -> None:
    done = run("-k", "process or passes", WORKED)

    assert "the process that was to run it has ended" in done.stdout
    failed, passed = map(int, re.findall(r"(\d+) (?:failed|passed)", done.stdout.splitlines()[-1]))
    # It may have been given the next one already.
    assert 1 <= failed <= 2
    assert failed + passed == 5
    assert done.returncode == 1


def test_after_a_failure_no_more_is_begun_if_that_is_asked_for() -> None:
    done = run("-x", "-k", "engine", WORKED)

    # One of each worker.
    assert re.search(r"^[12] failed", done.stdout.splitlines()[-1])
    assert done.returncode == 1


def test_that_all_pass_is_told_by_the_exit_code() -> None:
    assert run("-k", "passes", WORKED).returncode == 0
