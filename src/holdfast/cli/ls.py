"""`holdfast ls`: the locks in use."""

from __future__ import annotations

import click

from holdfast.cli import options, screen
from holdfast.model import LockInfo


@click.command()
@options.prefix_argument
@options.kind_option(None, "Only locks of this kind.  [default: all]")
@options.engine_options
@options.json_option
def ls(prefix: str, kind: str | None, url: str | None, namespace: str, as_json: bool) -> None:
    """List the locks in use under PREFIX: `db/` is what lies under db, `db` that and db itself.

    \b
    Examples:
      holdfast ls
      holdfast ls db/
      holdfast ls --json | jq -r '.[].name'
    """
    with options.connect(url, namespace) as client:
        found = client.list(prefix, kind=kind)
    if as_json:
        screen.document([info.as_dict() for info in found])
    elif found:
        screen.table(("name", "kind", "held by", "for", "token", "waiting"), [row(info) for info in found])
    elif screen.on_terminal():
        screen.line("no lock is in use" + (f" under {prefix!r}" if prefix else ""))


def row(info: LockInfo) -> list[str]:
    """One lock, in one line."""
    first = info.holders[0] if info.holders else None
    others = f" and {len(info.holders) - 1} more" if len(info.holders) > 1 else ""
    return [
        info.name,
        f"{info.kind} of {info.limit}" if info.limit else info.kind,
        "nobody" if first is None else first.who + others,
        "" if first is None else screen.seconds(first.age),
        "" if first is None else str(max(holder.token or 0 for holder in info.holders)),
        str(len(info.waiters)),
    ]
