"""`holdfast run`: CMD under a lock."""

from __future__ import annotations

from pathlib import Path

import click

import holdfast
from holdfast.api.settings import DEFAULT_TTL
from holdfast.cli import exit_codes, options
from holdfast.cli.command import Command, Ending
from holdfast.cli.holding import RunsCommand, close_quietly, exit_after, hold, make_terms
from holdfast.cli.report import Report
from holdfast.locks.spec import Options


@click.command(cls=RunsCommand)
@click.argument("name")
@click.argument("cmd", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD...")
@click.option(
    "--wait", type=options.SECONDS, help="Stand in line for at most so long; 0: do not wait.  [default: for ever]"
)
@click.option(
    "--ttl",
    type=options.SECONDS,
    default=DEFAULT_TTL,
    show_default=True,
    help="How long the lock outlives this process.",
)
@click.option("--shared", is_flag=True, help="Hold it together with other readers.")
@click.option("--limit", type=int, help="A semaphore: at most so many at once.")
@click.option("--subtree", is_flag=True, help="Cover everything under NAME too.")
@click.option("--max-hold", type=options.SECONDS, help="Stop CMD and let go after so long.")
@click.option(
    "--grace",
    type=options.SECONDS,
    help="How long before the lock could be lost CMD gets SIGTERM.  [default: a quarter of the ttl]",
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
@click.option("--note", help="What others see of this hold.")
@click.option("--app", help="Who others see.  [default: the name of CMD]")
@click.option("--quiet", "-q", is_flag=True, help="Say nothing of waiting and stopping; the exit code does.")
@options.engine_options
@click.option("--json", "as_json", is_flag=True, help="Tell what happens as JSON, one object a line, on stderr.")
def run(
    name: str, cmd: tuple[str, ...], wait: float | None, ttl: float, shared: bool, limit: int | None,
    subtree: bool, max_hold: float | None, grace: float | None, conflict: int, note: str | None,
    app: str | None, quiet: bool, url: str | None, namespace: str, as_json: bool,
) -> None:  # fmt: skip
    """Run CMD while holding the lock NAME, and exit with CMD's exit code.

    CMD finds HOLDFAST_NAME, HOLDFAST_TOKEN and HOLDFAST_OWNER in its environment, and HOLDFAST_SLOT
    under a semaphore. Its whole process group is stopped before the lock can be lost.

    \b
    Examples:
      holdfast run nightly -- ./job.sh
      holdfast run --wait 5 -E 99 nightly -- ./job.sh
      holdfast run --limit 4 gpu -- python train.py
      holdfast run --shared --subtree db -- pg_dump shop
    """
    if limit is not None and (shared or subtree):
        raise click.UsageError("--limit makes a semaphore, which is neither --shared nor --subtree")
    report = Report(name, quiet=quiet, as_json=as_json)
    # The guard is forked first, while this process has one thread and no connection.
    command = Command(cmd)

    def lock(client: holdfast.Client) -> holdfast.Lock:
        told = Options(wait=wait, max_hold=max_hold, note=note, on_lost=command.lost, on_wait=report.waiting)
        if limit is not None:
            return client.semaphore(name, limit, **told)
        if shared:
            return client.rwlock(name, subtree=subtree, **told).read()
        return client.lock(name, subtree=subtree, **told)

    def work() -> Ending:
        terms = make_terms(ttl, grace, max_hold)
        client = options.connect(url, namespace, ttl=ttl, app=Path(cmd[0]).name if app is None else app)
        try:
            with report:
                grant = lock(client).acquire()
            return hold(command, grant, terms, report)
        finally:
            close_quietly(client, report)

    exit_after(work, command, report, conflict)
