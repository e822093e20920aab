"""`holdfast why`: what a name waits for."""

from __future__ import annotations

from collections.abc import Iterator

import click

from holdfast.cli import options, screen
from holdfast.cli.show import in_use
from holdfast.cli.waits import Entry, Node, Wait, Waits, roots

Branch = tuple[str, str, list["Branch"]]
"""A line, its style, and what hangs on it."""


@click.command()
@options.name_argument
@options.kind_option(None, "What NAME names.  [default: what is in use under it, a lock first]")
@options.engine_options
@options.json_option
def why(name: str, kind: str | None, url: str | None, namespace: str, as_json: bool) -> None:
    """Explain who holds NAME, who waits for it, and what those wait for themselves, across names.

    A subtree lock above NAME is in its way too. The last line names who everything waits for.

    \b
    Examples:
      holdfast why nightly
      holdfast why --json nightly | jq '.holders[].waits_for'
    """
    with options.connect(url, namespace) as client:
        kind = in_use(client, name, kind).kind
        waits = Waits(client.list())
    holders, waiters = waits.in_the_way(kind, name), waits.waiters(kind, name)
    ends = roots(holders)
    if as_json:
        document = {
            "kind": kind,
            "name": name,
            "holders": [holder.as_dict() for holder in holders],
            "waiters": [waiter.as_dict() for waiter in waiters],
            "roots": [{"kind": end.claim.kind, "name": end.claim.name, "owner": end.party.owner} for end in ends],
        }
        screen.document(document)
        return
    if not holders and not waiters:
        screen.line(f"{kind} {name!r} is free")
        return
    branches = [holder_branch(holder, name) for holder in holders]
    branches += [waiter_branch(waiter, waits) for waiter in waiters]
    screen.line(f"{kind} {name!r}", "bold")
    for line, style in drawn(branches):
        screen.line(line, style)
    if waiters or any(holder.waits for holder in holders):
        for end in ends:
            screen.line(f"everything waits for {end.party.who}, which holds {shown(end)} and waits for nothing")


def shown(entry: Entry) -> str:
    """A lock by its kind and name."""
    under = " and all under it" if entry.claim.subtree else ""
    return f"{entry.claim.kind} {entry.claim.name!r}{under}"


def holder_branch(node: Node, name: str) -> Branch:
    """One who holds what the name needs."""
    party = node.entry.party
    what = "held by" if node.entry.claim.name == name else f"{shown(node.entry)}, held by"
    text = f"{what} {party.who} for {screen.seconds(party.age)}, {screen.how(party, node.entry.limit)}"
    text += f", token {party.token}" if party.token is not None else f", place {node.entry.position} in line"
    return text, "green", below(node)


def waiter_branch(node: Node, waits: Waits) -> Branch:
    """One who waits for the name, with what it keeps from others meanwhile."""
    party = node.entry.party
    text = f"{node.entry.position}. {party.who} waits for {screen.seconds(party.age)}, "
    text += screen.how(party, node.entry.limit)
    hanging = below(node)
    for held in waits.held_by(party.owner):
        blocked = waits.blocked(held)
        suffix = f", for which {blocked} wait{'s' if blocked == 1 else ''}" if blocked else ""
        hanging.append((f"holds {shown(held)}{suffix}", "", []))
    return text, "yellow", hanging


def below(node: Node) -> list[Branch]:
    """What there is to say about one who is in the way."""
    found: list[Branch] = []
    if node.entry.party.note:
        found.append((f"note: {node.entry.party.note}", "", []))
    if node.remark:
        found.append((node.remark, "red", []))
    if node.seen_above:
        found.append(("which is a cycle", "bold red", []))
    return found + [wait_branch(wait) for wait in node.waits]


def wait_branch(wait: Wait) -> Branch:
    """What one in the way waits for."""
    entry = wait.entry
    text = f"waits for {shown(entry)}, place {entry.position} in line, for {screen.seconds(entry.party.age)}"
    return text, "yellow", [holder_branch(node, entry.claim.name) for node in wait.blockers]


def drawn(branches: list[Branch], indent: str = "") -> Iterator[tuple[str, str]]:
    """The tree in lines."""
    for number, (text, style, hanging) in enumerate(branches, 1):
        last = number == len(branches)
        yield f"{indent}{'└─ ' if last else '├─ '}{text}", style
        yield from drawn(hanging, indent + ("   " if last else "│  "))
