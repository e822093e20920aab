"""`holdfast bench` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.bench import bench
from holdfast.cli.main import exit_code_of

SHORT = ["--seconds", "0.02", "--rounds", "1", "--ttl", "5"]


def test_it_prints_a_table_in_a_pipe() -> None:
    done = CliRunner().invoke(bench, ["memory://", "--only", "pairs", *SHORT], catch_exceptions=False)

    assert done.exit_code == 0
    heading, *lines = done.output.splitlines()
    assert heading.split() == ["MEASURE", "FIGURE", "HOLDFAST"]
    assert len(lines) == 4


def test_it_prints_json_with_the_ratio() -> None:
    arguments = ["--only", "pairs", "--against", "filelock", "--json", *SHORT]

    done = CliRunner().invoke(bench, arguments, catch_exceptions=False)

    data = json.loads(done.output)
    assert data["peer"] == "filelock"
    assert [result["case"] for result in data["results"]] == [
        "blocking, 1 thread",
        "blocking, 16 threads",
        "asyncio, 1 task",
        "asyncio, 64 tasks",
    ]
    assert all(result["ratio"]["pairs_per_s"] > 0 for result in data["results"])


def test_without_a_url_the_users_own_file_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("HOLDFAST_URL", f"sqlite:///{tmp_path / 'mine.db'}")

    CliRunner().invoke(bench, ["--only", "pairs", *SHORT], catch_exceptions=False)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments", [["--against", "floppylock"], ["--only", "everything"], ["--rounds", "0"], ["--seconds", "nan"]]
)
def test_arguments_that_mean_nothing_are_refused(arguments: list[str]) -> None:
    assert CliRunner().invoke(bench, arguments).exit_code == 2


@pytest.mark.parametrize(
    "arguments",
    [["--ttl", "10ms", "--only", "holding"], ["--seconds", "0"], ["--against", "redis-py"], ["--against", "kazoo"]],
)
def test_what_cannot_be_measured_is_refused_before_anything_starts(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code_of(["bench", *arguments, "--json"]) == 2

    assert json.loads(capsys.readouterr().err)["error"] == "InvalidRequest"


def test_durations_may_have_a_unit() -> None:
    arguments = ["memory://", "--only", "pairs", "--seconds", "20ms", "--rounds", "1", "--ttl", "5s", "--json"]

    done = CliRunner().invoke(bench, arguments, catch_exceptions=False)

    assert (json.loads(done.stdout)["plan"]["seconds"], json.loads(done.stdout)["ttl"]) == (0.02, 5.0)
