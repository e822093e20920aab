"""`holdfast simulate`: the classic stories in virtual time, and a search for violations."""

from __future__ import annotations

import sys
import textwrap
from typing import Any

import click

from holdfast.cli import exit_codes, screen
from holdfast.cli.options import json_option
from holdfast.errors import InvalidRequest
from holdfast.simulate import scenarios
from holdfast.simulate.chronicle import Line
from holdfast.simulate.scenario import Scenario, Told, command, play
from holdfast.simulate.search import Search, Violation, first_that_goes_wrong, search
from holdfast.simulate.verdict import judge
from holdfast.verify.finding import Finding, story

EVENTS = {
    "granted": "green", "written": "green", "stale": "bold green", "killed": "magenta", "stopped": "magenta",
    "cut": "magenta", "weather": "magenta", "crashed": "magenta", "lost": "yellow", "refused": "yellow", "left": "red",
}  # fmt: skip
"""Colours of the events that matter."""


def complete_scenario(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Names that begin so, for the shell."""
    return [name for name in scenarios.PLACES if name.startswith(incomplete)]


@click.command(short_help="Run the lock table in a simulated world.")
@click.argument("scenario", required=False, shell_complete=complete_scenario)
@click.option("--seed", type=click.IntRange(min=0), help="Where chance begins.  [default: 1]")
@click.option("--runs", type=click.IntRange(min=1), help="Search so many seeds, from --seed on, for a violation.")
@click.option("--keep", metavar="N,N,…", help="Perform only these acts of the plot, as a search prints them.")
@json_option
def simulate(scenario: str | None, seed: int | None, runs: int | None, keep: str | None, as_json: bool) -> None:
    """Tell SCENARIO as an event log in virtual time; without one, list them.

    The fronts and the lock table are the real ones; time, machines, the network, the disk and the
    protected resource are simulated. The same seed gives the same log, byte for byte. With --runs
    many seeds are searched for a violation, which is shrunk to its shortest story.

    Exit code 1 if a promise was broken, or if a scenario that has to go wrong did not.

    \b
    Examples:
      holdfast simulate
      holdfast simulate split-brain
      holdfast simulate storm --runs 10000
    """
    if scenario is None:
        _list(as_json)
        return
    chosen = scenarios.find(scenario)
    if runs is not None:
        if keep is not None:
            raise InvalidRequest("keep", keep, "it is for one story; leave out --runs")
        _search(chosen, 1 if seed is None else seed, runs, as_json)
        return
    if seed is None and chosen.breaks and not chosen.always:
        seed = first_that_goes_wrong(chosen, 1)
    _tell(chosen, 1 if seed is None else seed, _kept(keep), as_json)


def _kept(keep: str | None) -> tuple[int, ...] | None:
    if keep is None:
        return None
    try:
        return tuple(int(number) for number in keep.split(",") if number.strip() not in ("", "none"))
    except ValueError:
        raise InvalidRequest("keep", keep, "numbers of acts, as in 0,3,5") from None


def _list(as_json: bool) -> None:
    rows = []
    for name in scenarios.PLACES:
        try:
            found = scenarios.find(name)
        except InvalidRequest as error:
            rows.append({"name": name, "title": error.rule, "about": "", "breaks": ""})
            continue
        rows.append({"name": name, "title": found.title, "about": found.about, "breaks": found.breaks})
    if as_json:
        screen.document(rows)
    else:
        screen.table(
            ("scenario", "title", "has to break"), [(row["name"], row["title"], row["breaks"]) for row in rows]
        )


# One story


def _tell(scenario: Scenario, seed: int, keep: tuple[int, ...] | None, as_json: bool) -> None:
    if not as_json:
        screen.line(f"{scenario.title} (seed {seed})", "bold")
        screen.block(textwrap.fill(scenario.about, 100) + "\n")
    told = play(scenario, seed, keep=keep)
    findings = judge(told.history)
    for line in told.simulation.chronicle.lines:
        screen.document(line.as_dict()) if as_json else _show(line)
    problem = _problem(told, findings, keep is None)
    if as_json:
        verdict = {
            "event": "verdict", "ok": not problem, "scenario": scenario.name, "seed": seed, "problem": problem,
            "claims": {finding.claim: finding.state for finding in findings}, "again": command(scenario, seed, keep),
        }  # fmt: skip
        screen.document(verdict)
    else:
        _show_verdict(told, findings)
        screen.line(f"Again: {command(scenario, seed, keep)}")
    if problem:
        screen.tell(f"holdfast: {problem}")
        click.get_current_context().exit(exit_codes.CONFLICT)


def _problem(told: Told, findings: list[Finding], whole: bool) -> str:
    """What is wrong with how it went; empty if nothing is."""
    scenario = told.scenario
    broken = [finding.claim for finding in findings if finding.state == "broken"]
    if scenario.breaks:
        return "" if scenario.breaks in broken else f"{scenario.breaks!r} had to be broken, and was not"
    if broken:
        return f"broken: {', '.join(broken)}"
    events = {line.event for line in told.simulation.chronicle.lines}
    missing = [event for event in scenario.shows if event not in events] if whole else []
    return f"the story did not show: {', '.join(missing)}" if missing else ""


def _show(line: Line) -> None:
    screen.line(str(line), EVENTS.get(line.event, ""))


def _show_verdict(told: Told, findings: list[Finding]) -> None:
    tested = [finding for finding in findings if finding.state != "not tested"]
    network = told.simulation.network
    screen.line()
    screen.line(f"{network.sent} messages in {told.simulation.world.time:.0f} simulated seconds. Judged:")
    for finding in tested:
        as_it_must = " (as it has to be here)" if finding.claim == told.scenario.breaks else ""
        screen.line(
            f"  {finding.claim}: {finding.state}{as_it_must}, {finding.checked} looked at",
            "red" if finding.state == "broken" and not as_it_must else "",
        )
        if finding.state == "broken" and finding.shortest is not None:
            screen.line(f"    {finding.shortest.summary}")


# A search


def _search(scenario: Scenario, seed: int, runs: int, as_json: bool) -> None:
    shows = not as_json and sys.stderr.isatty()

    def progress(run: int) -> None:
        if shows and run % 100 == 0:
            screen.progress(f"{run} of {runs}")

    result = search(scenario, seed, runs, progress=progress)
    if shows:
        screen.progress("")
    if as_json:
        screen.document(_as_data(result))
    else:
        _show_search(result)
    if not result.ok:
        click.get_current_context().exit(exit_codes.CONFLICT)


def _show_search(result: Search) -> None:
    scenario = result.scenario
    last = result.first + result.runs - 1
    if scenario.breaks:
        screen.line(
            f"{scenario.name}: broke {scenario.breaks!r} in {result.expected} of {result.runs} runs, as it has to."
        )
        if not result.ok:
            which = f" (seeds {', '.join(map(str, result.missed[:5]))})" if result.missed else ""
            screen.tell(f"holdfast: it had to go wrong, and did not{which}: the search is blind")
        return
    if not result.found:
        screen.line(f"{scenario.name}: seeds {result.first} to {last}, {result.runs} runs, no violation.")
        return
    for violation in result.found:
        _show_violation(violation)


def _show_violation(violation: Violation) -> None:
    told, shortest = violation.shortest, violation.finding.shortest
    screen.line(f"{violation.claim} is broken from seed {violation.seed}.", "bold red")
    screen.line(f"Shrunk from {violation.acts} acts to {len(told.acts)}:")
    screen.line()
    for line in told.simulation.chronicle.lines:
        _show(line)
    if shortest is not None:
        screen.line()
        screen.line("What the judge saw:")
        for text in story(shortest):
            screen.line(f"  {text}")
    screen.line()
    screen.line(f"Again: {violation.again}")


def _as_data(result: Search) -> dict[str, Any]:
    return {
        "scenario": result.scenario.name,
        "ok": result.ok,
        "first_seed": result.first,
        "runs": result.runs,
        "has_to_break": result.scenario.breaks,
        "went_wrong": result.expected,
        "missed": result.missed,
        "violations": [
            {
                "claim": violation.claim,
                "seed": violation.seed,
                "acts": len(violation.shortest.acts),
                "acts_before": violation.acts,
                "summary": violation.finding.shortest.summary if violation.finding.shortest else "",
                "story": [line.as_dict() for line in violation.shortest.simulation.chronicle.lines],
                "again": violation.again,
            }
            for violation in result.found
        ],
    }
