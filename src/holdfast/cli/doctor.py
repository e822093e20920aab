"""`holdfast doctor URL`: what this deployment can really promise."""

from __future__ import annotations

import json
import sys

import click

from holdfast.api.settings import DEFAULT_NAMESPACE, DEFAULT_TTL, make_settings
from holdfast.engines.checkup import CheckedEngine, Finding

MARKS = {"good": "ok", "warning": "warning", "danger": "DANGER"}


def examine(url: str | None) -> tuple[str, list[Finding]]:
    """Connect as a client would, and look."""
    engine = make_settings(url, DEFAULT_TTL, DEFAULT_NAMESPACE, "doctor", ()).engine()
    try:
        promise = Finding("promise", "good", engine.guarantees.summary, engine.guarantees.lost_node)
        found = engine.check_up() if isinstance(engine, CheckedEngine) else []
        return engine.address, [promise, *found]
    finally:
        engine.close()


@click.command()
@click.argument("url", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def doctor(url: str | None, as_json: bool) -> None:
    """Read an engine's real configuration and say what it can promise.

    Exits with 1 if something is dangerous for a lock.
    """
    address, findings = examine(url)
    if as_json:
        click.echo(json.dumps({"engine": address, "findings": [finding.as_dict() for finding in findings]}, indent=2))
    else:
        click.echo(address)
        for finding in findings:
            click.echo(f"  {MARKS[finding.level]:8} {finding.check}: {finding.found}")
            for more in (finding.consequence, finding.mend and f"mend: {finding.mend}"):
                if more:
                    click.echo(f"           {more}")
    if any(finding.level == "danger" for finding in findings):
        sys.exit(1)
