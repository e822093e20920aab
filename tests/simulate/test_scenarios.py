"""Each scenario shows what it says, and the same seed gives the same log, byte for byte."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.main import cli, exit_code_of
from holdfast.simulate.scenario import Scenario, play
from holdfast.simulate.scenarios import PLACES, find
from holdfast.simulate.search import search
from holdfast.simulate.verdict import broken, judge

ALWAYS = [name for name in PLACES if not find(name).breaks or find(name).always]
CONTROLS = [name for name in PLACES if find(name).breaks]
SEEDS = int(os.environ.get("HOLDFAST_SEEDS", "20"))
LONG = {"thundering-herd": 3}
"""How many seeds of long stories."""


def simulate(*arguments: str) -> Result:
    """`holdfast simulate`, in this process."""
    return CliRunner().invoke(cli, ["simulate", *arguments], catch_exceptions=False)


@pytest.mark.parametrize("name", ALWAYS)
def test_a_scenario_shows_what_it_is_about_from_every_seed(name: str) -> None:
    scenario = find(name)
    for seed in range(1, LONG.get(name, 6 if name.startswith("cluster") else SEEDS)):
        told = play(scenario, seed)
        events = {line.event for line in told.simulation.chronicle.lines}

        assert set(scenario.shows) <= events, f"seed {seed}"
        assert bool(scenario.breaks) == bool(broken(told.history)), f"seed {seed}"
        if scenario.breaks:
            assert scenario.breaks in {finding.claim for finding in broken(told.history)}


@pytest.mark.parametrize("name", CONTROLS)
def test_a_scenario_that_has_to_go_wrong_goes_wrong_in_a_search(name: str) -> None:
    # Power cuts are long stories, and go wrong from every second seed or every tenth.
    runs = 10 if name.startswith("cluster") else 40 if "cut" in name or "crash" in name else 300
    result = search(find(name), 1, runs)

    assert result.ok
    assert result.expected > 0


@pytest.mark.parametrize(
    "arguments", [["split-brain-unfenced", "--keep", "0"], ["split-brain-unfenced", "--seed", "1"]]
)
def test_the_command_fails_if_what_has_to_go_wrong_does_not(arguments: list[str]) -> None:
    result = simulate(*arguments)

    assert result.exit_code == (1 if "--keep" in arguments else 0)
    assert ("had to be broken, and was not" in result.output) == ("--keep" in arguments)


def test_a_search_that_finds_nothing_wrong_with_a_control_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    tame = find("contention")
    control = Scenario("tame", tame.title, tame.about, tame.plot, breaks="exclusion")
    monkeypatch.setattr("holdfast.simulate.scenarios.find", lambda name: control)

    result = simulate("tame", "--runs", "3")

    assert result.exit_code == 1
    assert "the search is blind" in result.output


def log_of(seed_of_hashes: str, *arguments: str) -> bytes:
    """What another process prints."""
    command = [sys.executable, "-m", "holdfast.cli.main", "simulate", *arguments]
    environment = {**os.environ, "PYTHONHASHSEED": seed_of_hashes}
    return subprocess.run(command, env=environment, capture_output=True, check=True).stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["storm", "--seed", "7"],
        ["lost-minority", "--seed", "7", "--json"],
        ["server-crash", "--seed", "7"],
        ["server-storm", "--seed", "7", "--json"],
        ["cluster-takeover", "--seed", "7"],
        ["cluster-storm", "--seed", "7", "--json"],
        ["storm-unfenced", "--runs", "60", "--json"],
    ],
    ids=" ".join,
)
def test_the_same_seed_gives_the_same_log_in_every_process(arguments: list[str]) -> None:
    assert log_of("1", *arguments) == log_of("2", *arguments) != b""


def test_another_seed_gives_another_log() -> None:
    assert simulate("storm", "--seed", "1").output != simulate("storm", "--seed", "2").output


def test_without_a_scenario_all_are_listed() -> None:
    listed = json.loads(simulate("--json").output)

    assert [row["name"] for row in listed] == list(PLACES)
    assert all(row["title"] and row["about"] for row in listed)
    assert all(name in simulate().output for name in PLACES)


def test_an_unknown_scenario_is_bad_input_with_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code_of(["simulate", "split-brian"]) == 2
    assert "did you mean split-brain" in capsys.readouterr().err


def test_json_ends_with_a_verdict_and_the_line_that_runs_it_again() -> None:
    *events, verdict = [json.loads(line) for line in simulate("split-brain", "--json").output.splitlines()]

    assert {"at", "who", "event", "text"} <= events[0].keys()
    assert verdict["ok"] is True
    assert verdict["claims"]["exclusion"] == "kept"
    assert verdict["again"] == "holdfast simulate split-brain --seed 1"


def test_the_herd_is_not_woken_together() -> None:
    told = play(find("thundering-herd"), 1)

    granted = [finding for finding in judge(told.history) if finding.claim == "order"]
    assert granted[0].checked > 80
    # Beside the grants themselves: sessions, looks ahead, heartbeats. A herd would be a hundred times a hundred.
    assert told.simulation.network.sent < 100 * 40
