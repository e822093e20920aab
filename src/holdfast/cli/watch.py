"""`holdfast watch`: what happens, as it happens."""

from __future__ import annotations

from datetime import datetime

import click

from holdfast.cli import options, screen
from holdfast.model import LockEvent


@click.command()
@options.prefix_argument
@options.engine_options
@options.json_option
def watch(prefix: str, url: str | None, namespace: str, as_json: bool) -> None:
    """Follow what happens to locks under PREFIX, one line an event, until Ctrl-C.

    \b
    Examples:
      holdfast watch
      holdfast watch db/
      holdfast watch --json | jq -r 'select(.type == "expired") | .name'
    """
    with options.connect(url, namespace) as client, client.watch(prefix) as events:
        for event in events:
            if as_json:
                screen.document(event.as_dict())
            else:
                screen.line(sentence(event), screen.STYLES.get(event.type, ""))


def sentence(event: LockEvent) -> str:
    """An event in one line."""
    at = datetime.fromtimestamp(event.at).astimezone().strftime("%H:%M:%S.%f")[:-3]
    token = "" if event.token is None else f"  token {event.token}"
    detail = f"  {event.detail}" if event.detail else ""
    mode = "" if event.mode == "exclusive" else f"  {event.mode}"
    return f"{at}  {event.type:<8}  {event.kind} {event.name!r}  {event.owner}{mode}{token}{detail}"
