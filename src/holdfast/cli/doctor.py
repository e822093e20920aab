"""`holdfast doctor URL`: what this deployment can really promise."""

from __future__ import annotations

import sys

import click

from holdfast.api.settings import DEFAULT_TTL, make_settings
from holdfast.cli import options, screen
from holdfast.engines.checkup import CheckedEngine, Finding

MARKS = {"good": "ok", "warning": "warning", "danger": "DANGER"}


def examine(url: str | None, namespace: str) -> tuple[str, list[Finding]]:
    """Connect as a client would, and look."""
    engine = make_settings(url, DEFAULT_TTL, namespace, "doctor", ()).engine()
    try:
        promise = Finding("promise", "good", engine.guarantees.summary, engine.guarantees.lost_node)
        found = engine.check_up() if isinstance(engine, CheckedEngine) else []
        return engine.address, [promise, *found]
    finally:
        engine.close()


@click.command()
@click.argument("engine", metavar="[URL]", required=False)
@options.engine_options
@options.json_option
def doctor(engine: str | None, url: str | None, namespace: str, as_json: bool) -> None:
    """Read the real configuration of the engine at URL and say what it can promise.

    Without URL it is the engine that the other commands use. Exits with 1 if something is dangerous
    for a lock.

    \b
    Examples:
      holdfast doctor
      holdfast doctor redis://127.0.0.1:6379/0
      holdfast doctor --json | jq '.findings[] | select(.level != "good")'
    """
    address, findings = examine(engine or url, namespace)
    if as_json:
        screen.document({"engine": address, "findings": [finding.as_dict() for finding in findings]})
    else:
        screen.line(address)
        for finding in findings:
            screen.line(f"  {MARKS[finding.level]:8} {finding.check}: {finding.found}")
            for more in (finding.consequence, finding.mend and f"mend: {finding.mend}"):
                if more:
                    screen.line(f"           {more}")
    if any(finding.level == "danger" for finding in findings):
        sys.exit(1)
