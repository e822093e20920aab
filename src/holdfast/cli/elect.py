"""`holdfast elect`: CMD while leading."""

from __future__ import annotations

import itertools
import random
import time
from pathlib import Path

import click

import holdfast
from holdfast.api.settings import DEFAULT_TTL
from holdfast.cli import exit_codes, options
from holdfast.cli.command import Command, Ending
from holdfast.cli.holding import RunsCommand, Terms, close_quietly, exit_after, hold, make_terms
from holdfast.cli.report import Report
from holdfast.core.backoff import full_jitter
from holdfast.errors import EngineUnavailable


@click.command(cls=RunsCommand)
@click.argument("name")
@click.argument("cmd", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD...")
@click.option("--value", default="", help="What others see of the leader, such as host:port.")
@click.option("--once", is_flag=True, help="Do not campaign again after losing.")
@click.option("--wait", type=options.SECONDS, help="Campaign for at most so long.  [default: for ever]")
@click.option(
    "--ttl",
    type=options.SECONDS,
    default=DEFAULT_TTL,
    show_default=True,
    help="How long leading outlives this process.",
)
@click.option(
    "--grace",
    type=options.SECONDS,
    help="How long before leading could end CMD gets SIGTERM.  [default: a quarter of the ttl]",
)
@click.option(
    "--conflict-exit-code",
    "-E",
    "conflict",
    type=click.IntRange(0, 255),
    default=exit_codes.CONFLICT,
    show_default=True,
    help="When the wait is over.",
)
@click.option("--app", help="Who others see.  [default: the name of CMD]")
@click.option("--quiet", "-q", is_flag=True, help="Say nothing of waiting and stopping.")
@options.engine_options
@click.option("--json", "as_json", is_flag=True, help="Tell what happens as JSON, one object a line, on stderr.")
def elect(
    name: str, cmd: tuple[str, ...], value: str, once: bool, wait: float | None, ttl: float,
    grace: float | None, conflict: int, app: str | None, quiet: bool, url: str | None, namespace: str,
    as_json: bool,
) -> None:  # fmt: skip
    """Run CMD only while leading the election NAME.

    When leading ends CMD is stopped first, and the campaign begins again (unless --once). When CMD
    ends by itself, so does this command, with CMD's exit code, and another candidate leads.

    \b
    Examples:
      holdfast elect scheduler -- ./scheduler --serve
      holdfast elect --value "$(hostname):9000" scheduler -- ./scheduler
      holdfast show --kind election scheduler
    """
    report = Report(name, quiet=quiet, as_json=as_json)
    # The guard is forked first, while this process has one thread and no connection.
    command = Command(cmd)

    def work() -> Ending:
        terms = make_terms(ttl, grace)
        client = options.connect(url, namespace, ttl=ttl, app=Path(cmd[0]).name if app is None else app)
        try:
            return lead(Candidate(client, name, value, wait, command, report), terms, once)
        finally:
            close_quietly(client, report)

    exit_after(work, command, report, conflict)


class Candidate:
    """One who campaigns, again and again."""

    def __init__(
        self, client: holdfast.Client, name: str, value: str, wait: float | None, command: Command, report: Report
    ) -> None:
        self.command, self.report = command, report
        self.numbers = itertools.count(1)
        self.election = client.election(name, value, wait=wait, on_lost=command.lost, on_wait=report.waiting)

    def campaign(self, again: bool) -> holdfast.Grant:
        """Wait to lead. The first try tells when the engine cannot be reached, a later one tries on."""
        pauses = full_jitter(0.5, 10.0, random.uniform)
        told = False
        while True:
            try:
                # Another owner each time: a lost claim may still be there, and its own owner cannot wait for it.
                with self.report, holdfast.owner(f"campaign-{next(self.numbers)}"):
                    return self.election.campaign()
            except EngineUnavailable as error:
                if not again:
                    raise
                if not told:
                    self.report.say(f"campaigning again as soon as the engine answers: {error}", "retrying")
                told = True
                time.sleep(next(pauses))


def lead(candidate: Candidate, terms: Terms, once: bool) -> Ending:
    """Campaign and run CMD, until CMD ends by itself."""
    again = False
    while True:
        ending = hold(candidate.command, candidate.campaign(again), terms, candidate.report)
        if not ending.stopped or once or ending.problem:
            return ending
        candidate.report.say("no longer leading; campaigning again", "campaigning")
        again = True
