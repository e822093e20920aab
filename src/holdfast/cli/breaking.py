"""`holdfast break`: an operator's release."""

from __future__ import annotations

import sys

import click

from holdfast.cli import exit_codes, options, screen


@click.command(name="break")
@options.name_argument
@options.kind_option("lock", "What NAME names.")
@click.option("--force", is_flag=True, help="At once, whether the holders know it or not: only a fence protects then.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@options.engine_options
@options.json_option
def break_lock(name: str, kind: str, force: bool, yes: bool, url: str | None, namespace: str, as_json: bool) -> None:
    """Make every holder of NAME let go. Whoever waits goes on.

    Each holder is told that its grant is lost and releases it; one that does not answer is removed
    when its ttl is over. On a terminal it asks first.

    \b
    Examples:
      holdfast break nightly
      holdfast break --yes --force nightly
      holdfast break --kind semaphore gpu
    """
    with options.connect(url, namespace) as client:
        info = client.inspect(name, kind=kind)
        if info.holders and not yes and sys.stdin.isatty():
            for holder in info.holders:
                screen.tell(f"held by {holder.who} for {screen.seconds(holder.age)}")
            if not click.confirm(f"Break {kind} {name!r}?", err=True):
                click.get_current_context().exit(exit_codes.CONFLICT)
        broken = client.break_lock(name, kind=kind, force=force)
        others = [one for one in options.KINDS if one != kind and client.inspect(name, kind=one).holders]
    if as_json:
        screen.document({"kind": kind, "name": name, "broken": broken, "forced": force})
    elif broken:
        screen.line(f"{kind} {name!r}: {broken} holder{'s' if broken > 1 else ''} let go")
    else:
        hint = f"; it is in use as {others[0]}: --kind {others[0]}" if others else ""
        screen.line(f"nobody held {kind} {name!r}{hint}")
