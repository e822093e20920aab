"""`holdfast cluster`: how a cluster of lock servers is."""

from __future__ import annotations

import time
from typing import Any

import click

from holdfast.cli import exit_codes, options, screen
from holdfast.core import urls
from holdfast.engines.holdfast import cluster as servers
from holdfast.engines.holdfast.cluster import Answer, Survey
from holdfast.errors import InvalidRequest

HEADINGS = ("server", "role", "version", "up", "batch", "commit", "log", "snapshot", "sessions", "claims")
ETCD_HEADINGS = ("etcd", "state", "version", "size", "problem")


@click.group()
def cluster() -> None:
    """See how a cluster of lock servers is."""


@cluster.command()
@click.argument("url")
@options.json_option
def status(url: str, as_json: bool) -> None:
    """Show who leads, who follows, how far each is, and how etcd under them is.

    Asks every server that URL names, and every one that those know. Exits with 1 if nobody leads or
    one of them does not answer, with 69 if none does.

    \b
    Examples:
      holdfast cluster status holdfast://10.0.0.1,10.0.0.2,10.0.0.3
      holdfast cluster status --json holdfast://10.0.0.1 | jq -r .leader
    """
    parsed = urls.parse(url)
    if parsed.scheme != "holdfast":
        raise InvalidRequest("url", str(parsed), "lock servers are at holdfast://host:port,…")
    found = servers.survey(parsed)
    if as_json:
        screen.document(found.as_dict())
    else:
        show(found)
    if len(found.silent) == len(found.answers):
        click.get_current_context().exit(exit_codes.UNAVAILABLE)
    if not found.healthy:
        click.get_current_context().exit(exit_codes.CONFLICT)


def show(found: Survey) -> None:
    """As people read it: the most important thing last."""
    screen.table(HEADINGS, [row(answer) for answer in found.answers])
    if found.etcd:
        screen.table(ETCD_HEADINGS, [etcd_row(node) for node in found.etcd])
    for answer in found.silent:
        screen.line(f"{answer.address} does not answer: {answer.problem}", "bold red")
    if found.leader is None:
        screen.line("nobody leads: nothing is granted or renewed", "bold red")
    else:
        lease = found.leader.status["lease"]
        screen.line(f"{found.leader.address} leads, with {lease['remaining']:.1f} s of its lease of {lease['ttl']} s")


def row(answer: Answer) -> list[str]:
    """One server, in one line."""
    if answer.problem:
        return [answer.address, "no answer", *[""] * (len(HEADINGS) - 2)]
    status = answer.status
    me: dict[str, Any] = next((member for member in status["members"] if member["id"] == status["id"]), {})
    commit, log, snapshot = status["commit_seconds"], status["log"], status["snapshot"]
    return [
        answer.address,
        status["role"],
        me.get("version", ""),
        screen.seconds(max(0.0, time.time() - me["started"])) if me else "",
        str(status["number"]),
        "" if commit is None else f"{commit * 1000:.1f} ms",
        f"{log['batches']} batches, {size(log['bytes'])}",
        size(snapshot["bytes"]),
        str(status["sessions"]),
        str(status["claims"]),
    ]


def etcd_row(node: dict[str, Any]) -> list[str]:
    """One etcd member, in one line."""
    state = "leader" if node["leader"] else "healthy" if node["healthy"] else "not healthy"
    return [
        node["endpoint"],
        state,
        node["version"] or "",
        size(node["db_bytes"]) if node["db_bytes"] else "",
        node["problem"] or "",
    ]


def size(count: float) -> str:
    """Bytes as people say it."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
