"""`holdfast bench`: measure an engine, alone or beside a peer."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import click

from holdfast.api.settings import DEFAULT_NAMESPACE, DEFAULT_TTL, make_settings
from holdfast.bench import report, suite
from holdfast.bench.plan import Plan
from holdfast.bench.subject import PEERS
from holdfast.cli import screen
from holdfast.cli.options import SECONDS, json_option
from holdfast.locks.spec import check_seconds


@click.command(short_help="Measure an engine, alone or beside a peer.")
@click.argument("url", required=False)
@click.option("--against", type=click.Choice(PEERS), help="Measure this library in the same run, in turns.")
@click.option("--seconds", type=SECONDS, default=1.0, show_default=True, help="Length of a slice.")
@click.option("--rounds", type=click.IntRange(min=1), default=5, show_default=True, help="Slices for each measure.")
@click.option("--only", type=click.Choice(suite.GROUPS), multiple=True, help="Only this measure; may be repeated.")
@click.option("--ttl", type=SECONDS, default=DEFAULT_TTL, show_default=True, help="Of the sessions.")
@json_option
def bench(
    url: str | None, against: str | None, seconds: float, rounds: int, only: tuple[str, ...], ttl: float, as_json: bool
) -> None:
    """Measure the engine at URL; without one, SQLite in a temporary file.

    Each figure is the median over the rounds. With --against the two take turns, and the
    ratio is the median of the rounds' ratios: a machine that is busy for a while slows both.

    \b
    Examples:
      holdfast bench
      holdfast bench redis://127.0.0.1:6379/0 --against redis-py
      holdfast bench --only pairs --only sleeping --json
    """
    check_seconds("seconds", seconds, least=0.01)
    # Also where only worker processes would connect.
    make_settings(url or "memory://", ttl, DEFAULT_NAMESPACE, None, ())
    # Three heartbeats, so that their number a second can be told.
    plan = Plan(seconds=seconds, rounds=rounds, watch=max(seconds, ttl))
    status = screen.console(stderr=True)
    shows: AbstractContextManager[Any] = status.status("") if status.is_terminal else nullcontext()
    with shows as spinner:
        run = suite.run(url, against, ttl, plan, only, progress=spinner.update if spinner else lambda text: None)
    if as_json:
        screen.document(report.as_data(run))
    else:
        screen.table(report.headings(run), report.lines(run))
