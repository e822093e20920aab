"""Every scenario of `holdfast simulate` goes as recorded: the same events at the same moments from the same seed.

A record begins with a digest for each of 200 seeds. The logs of the first two seeds follow in full, so that a
difference can be read. The program's words do not count: only time, actor, event, facts, the values that a sentence
names, and the verdict. `make test` plays three seeds of each scenario, HOLDFAST_THOROUGH=1 all of them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast.cli.main import cli
from tests.records.record import Record, first_differences

SEEDS = range(1, 201)
IN_FULL = SEEDS[:2]
SAMPLE = (*IN_FULL, SEEDS[-1])
WORDS_FROM = 60
"""The column at which a line of a recorded log has the program's words."""
VALUES = re.compile(r"'[^']*'|\[[^\]]*\]|\d+(?:\.\d+)?")
"""What a sentence names: names in quotes, lists, numbers."""


def simulate(*arguments: str) -> str:
    """What `holdfast simulate` prints."""
    return CliRunner().invoke(cli, ["simulate", *arguments], catch_exceptions=False).stdout


SCENARIOS = [row["name"] for row in json.loads(simulate("--json"))]


def values_in(text: str) -> list[str]:
    """The values that a sentence names. What follows a colon is a reason, unless it is a list of values."""
    said, _, more = text.partition(": ")
    return VALUES.findall(text if more.startswith("[") else said)


def event_of(line: dict[str, Any]) -> str:
    """One line of a log without its words."""
    at, who, event = line.pop("at"), line.pop("who"), line.pop("event")
    facts = [f"{key}={json.dumps(value)}" for key, value in sorted(line.items())]
    return f"{at:10.6f} {who:<8} {event:<14} {' '.join(facts)}".rstrip()


def verdict_of(verdict: dict[str, Any]) -> str:
    claims = [f"{claim}={state.replace(' ', '_')}" for claim, state in sorted(verdict["claims"].items())]
    return f"verdict {'as expected' if verdict['ok'] else 'unexpected'}: {' '.join(claims)}"


def log(scenario: str, seed: int) -> Iterator[tuple[str, str]]:
    """The events of one run, each with the words for it."""
    *lines, verdict = map(json.loads, simulate(scenario, "--seed", str(seed), "--json").splitlines())
    for line in lines:
        text = line.pop("text")
        yield f"{event_of(line)} {' '.join(values_in(text))}".rstrip(), text
    yield verdict_of(verdict), ""


def digest(events: list[str]) -> str:
    return hashlib.sha256("\n".join(events).encode()).hexdigest()[:16]


def recorded_log(record: str, seed: int) -> list[str]:
    """The events of a log that was recorded in full; empty if only its digest was."""
    found = re.search(rf"^== seed {seed}\n(.*?)(?:\n\n|\Z)", record, re.MULTILINE | re.DOTALL)
    return [line.partition(" | ")[0].rstrip() for line in found[1].splitlines()] if found else []


def recorded_digests(record: str) -> dict[int, str]:
    return {int(seed): found for seed, found in re.findall(r"^seed (\d+) (\w+)$", record, re.MULTILINE)}


def record_anew(scenario: str) -> str:
    digests, in_full = [], []
    for seed in SEEDS:
        lines = list(log(scenario, seed))
        digests.append(f"seed {seed} {digest([event for event, _ in lines])}")
        if seed in IN_FULL:
            shown = [f"{event:<{WORDS_FROM}} | {text}" if text else event for event, text in lines]
            in_full.append("\n".join([f"== seed {seed}", *shown]))
    return "\n\n".join(["\n".join(digests), *in_full]) + "\n"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_goes_as_recorded(scenario: str, record: Callable[[str], Record]) -> None:
    kept = record(f"simulator/{scenario}.txt")
    if kept.recording:
        kept.write(record_anew(scenario))
    text = kept.text()
    digests = recorded_digests(text)
    assert list(digests) == list(SEEDS)

    for seed in SEEDS if os.environ.get("HOLDFAST_THOROUGH") else SAMPLE:
        events = [event for event, _ in log(scenario, seed)]
        if digest(events) == digests[seed]:
            continue
        difference = first_differences("\n".join(recorded_log(text, seed)), "\n".join(events))
        shown = f"(- recorded, + now)\n{difference}" if seed in IN_FULL else "its log is not recorded in full"
        again = f"holdfast simulate {scenario} --seed {seed}"
        pytest.fail(f"seed {seed} goes another way: {shown}\nRun it here and on an earlier commit: {again}", False)


def test_every_record_is_of_a_scenario(record: Callable[[str], Record]) -> None:
    folder = record("simulator").path

    assert sorted(file.stem for file in folder.glob("*.txt")) == sorted(SCENARIOS)


@pytest.mark.parametrize("seed", IN_FULL)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_logs_in_full_are_those_of_the_digests(scenario: str, seed: int, record: Callable[[str], Record]) -> None:
    text = record(f"simulator/{scenario}.txt").text()

    assert digest(recorded_log(text, seed)) == recorded_digests(text)[seed]


def test_other_words_make_no_other_log() -> None:
    assert values_in("did not get the lock 'k': the connection was refused after 3 s") == ["'k'"]
    assert values_in("reads 'k': [B0, B1]") == ["'k'", "[B0, B1]"]
    assert values_in("reads 'k': [B0, B1]") != values_in("reads 'k': [B0]")
