"""`holdfast guarantees`: what an engine promises."""

from __future__ import annotations

import click

from holdfast.cli import options, screen


@click.command()
@click.argument("engine", metavar="[URL]", required=False)
@options.engine_options
@options.json_option
def guarantees(engine: str | None, url: str | None, namespace: str, as_json: bool) -> None:
    """Show what the engine at URL promises, and what happens when a node is lost.

    Without URL it is the engine that the other commands use.

    \b
    Examples:
      holdfast guarantees
      holdfast guarantees sqlite:////var/lib/app/locks.db
    """
    with options.connect(engine or url, namespace) as client:
        promised = client.guarantees
        address = str(client._core)
    if as_json:
        screen.document({"engine": address, **promised.as_dict()})
        return
    screen.line(address, "bold")
    screen.line(promised.summary)
    screen.line(promised.lost_node)
    flags = [flag for flag in promised.FLAGS if flag != "strict_fencing"]
    rows = [(flag.replace("_", " "), "yes" if promised.has(flag) else "no") for flag in flags]
    rows += [("fencing", promised.fencing), ("clock", promised.clock)]
    rows += [("modes", ", ".join(sorted(promised.modes))), ("events", ", ".join(sorted(promised.events)))]
    screen.table(("guarantee", "promised"), rows)
