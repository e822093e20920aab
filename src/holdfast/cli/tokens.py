"""`holdfast tokens`: looking after an engine's token counters."""

from __future__ import annotations

import click

from holdfast.api.settings import DEFAULT_NAMESPACE
from holdfast.cli import options, screen
from holdfast.locks.tokens import raise_tokens
from holdfast.runtime.blocking import run


@click.group()
def tokens() -> None:
    """Look after an engine's tokens."""


@tokens.command(name="raise")
@click.argument("url")
@click.option("--above", type=int, required=True, help="The highest token that any resource has seen.")
@click.option("--namespace", default=DEFAULT_NAMESPACE, show_default=True, help="Whose counters.")
@options.json_option
def raise_(url: str, above: int, namespace: str, as_json: bool) -> None:
    """Make every later token of the engine at URL larger than N.

    Do this before locks move to an engine or a namespace that is older than the one they leave, or
    after an engine was restored from a backup: fences have seen higher tokens than it would give.

    \b
    Example:
      holdfast tokens raise sqlite:////var/lib/app/locks.db --above 1763000000000000
    """
    with options.connect(url, namespace) as client:
        run(raise_tokens(client._core, above))
    if as_json:
        screen.document({"namespace": namespace, "above": above})
    else:
        screen.line(f"every later token is larger than {above}")
