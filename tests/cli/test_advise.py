"""`holdfast advise`: by options, by JSON, and at a terminal. Every program that it prints runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.advice.answers import ALL, Advice
from holdfast.advice.tree import walk
from holdfast.cli import exit_codes
from tests.cli.stage import Stage
from tests.cli.terminals import Terminal

JOB = ("--what", "job", "--if-two-run", "harm", "--store-checks", "yes")


def options_for(advice: Advice) -> list[str]:
    """The options that lead to a recommendation."""
    path = next(path for path, found in walk() if found is advice)
    return [word for question, answer in path for word in (f"--{question.name}", answer)]


@pytest.mark.parametrize("advice", ALL, ids=lambda advice: advice.name)
def test_the_program_that_is_printed_runs(stage: Stage, tmp_path: Path, advice: Advice) -> None:
    done = stage.call("advise", *options_for(advice), "--url", stage.url, "--json")
    told = json.loads(done.stdout)

    assert told["recommendation"] == advice.name
    assert told["url"] == (None if advice.strength == "none" else stage.url)
    assert 0 < len([line for line in told["program"].splitlines() if line.strip()]) <= 10
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", told["program"]],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout or "print(" not in told["program"]


def test_it_recommends_in_words(stage: Stage) -> None:
    done = stage.call("advise", *JOB, "--machines", "many", "--runs", "postgresql")

    assert done.returncode == exit_codes.OK
    for part in ("A lock, and a fence in the store", "postgresql://127.0.0.1/app", "fence.check", "refused there"):
        assert part in done.stdout


def test_json_has_all_of_it(stage: Stage) -> None:
    told = json.loads(stage.call("advise", *JOB, "--machines", "one", "--json").stdout)

    assert told["answers"] == {"what": "job", "if-two-run": "harm", "store-checks": "yes", "machines": "one"}
    assert told["recommendation"] == "fenced_lock"
    assert told["url"] == "sqlite:///locks.db"
    assert all(told[key] for key in ("title", "reason", "engine_reason", "program"))


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_without_a_terminal_an_answer_that_is_missing_is_named(stage: Stage, more: tuple[str, ...]) -> None:
    done = stage.call("advise", *JOB, *more)

    assert done.returncode == exit_codes.BAD_INPUT
    assert "--machines" in done.stderr
    assert "one, many" in done.stderr


def test_an_answer_that_there_is_not_is_refused(stage: Stage) -> None:
    assert stage.call("advise", "--what", "nonsense").returncode == exit_codes.BAD_INPUT


def test_at_a_terminal_it_asks_what_it_was_not_told(stage: Stage) -> None:
    terminal = Terminal(stage, "advise", "--what", "job")
    terminal.expect("What happens if two run at once?")
    terminal.type("maybe\n")
    terminal.expect("one of waste, harm")
    terminal.type("harm\n")
    terminal.expect("check a version or a token")
    terminal.type("2\n")
    terminal.expect("On how many machines")
    terminal.type("one\n")

    assert terminal.end() == exit_codes.OK
    assert "an engine with a quorum" in terminal.seen
    assert "sqlite:///locks.db" in terminal.seen
    assert "What must not collide" not in terminal.seen
