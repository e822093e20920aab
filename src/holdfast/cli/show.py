"""`holdfast show`: one lock."""

from __future__ import annotations

import click

import holdfast
from holdfast.cli import options, screen
from holdfast.model import LockInfo, Party


@click.command()
@options.name_argument
@options.kind_option(None, "What NAME names.  [default: what is in use under it, a lock first]")
@options.engine_options
@options.json_option
def show(name: str, kind: str | None, url: str | None, namespace: str, as_json: bool) -> None:
    """Show who holds NAME and who waits for it, in order.

    \b
    Examples:
      holdfast show nightly
      holdfast show --kind semaphore gpu
      holdfast show --json nightly | jq '.holders[0].token'
    """
    with options.connect(url, namespace) as client:
        info = in_use(client, name, kind)
    if as_json:
        screen.document(info.as_dict())
        return
    if not info.holders and not info.waiters:
        screen.line(f"{info.kind} {info.name!r} is free")
        return
    rows = [("held", *columns(holder, info)) for holder in info.holders]
    rows += [(f"waits {place}", *columns(waiter, info)) for place, waiter in enumerate(info.waiters, 1)]
    screen.line(f"{info.kind} {info.name!r}", "bold")
    screen.table(("", "who", "how", "for", "token", "thread", "note"), rows)


def columns(party: Party, info: LockInfo) -> tuple[str, ...]:
    """A holder or waiter in the columns of the table."""
    # 0 where the engine does not know the token of somebody else's grant.
    token = str(party.token or "")
    return (
        party.who,
        screen.how(party, info.limit),
        screen.seconds(party.age),
        token,
        party.thread,
        party.note,
    )


def in_use(client: holdfast.Client, name: str, kind: str | None) -> LockInfo:
    """The lock of this kind; without a kind the first that is in use, else the lock that is free."""
    found = [client.inspect(name, kind=one) for one in ((kind,) if kind else options.KINDS)]
    return next((info for info in found if info.holders or info.waiters), found[0])
