"""`holdfast completion`: command, option and lock names by the Tab key."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from holdfast.cli import screen
from holdfast.cli.options import json_option

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS), required=False)
@json_option
def completion(shell: str | None, as_json: bool) -> None:
    """Print the completion script for SHELL; without it, for the shell in $SHELL.

    \b
    Examples:
      eval "$(holdfast completion bash)"                   # in ~/.bashrc
      eval "$(holdfast completion zsh)"                    # in ~/.zshrc
      holdfast completion fish > ~/.config/fish/completions/holdfast.fish
    """
    if shell is None:
        shell = Path(os.environ.get("SHELL", "")).name
        if shell not in SHELLS:
            raise click.UsageError(f"$SHELL is not one of {', '.join(SHELLS)}: say which one")
    found = get_completion_class(shell)
    root = click.get_current_context().find_root().command
    assert found is not None
    script = found(root, {}, "holdfast", "_HOLDFAST_COMPLETE").source()
    if as_json:
        screen.document({"shell": shell, "script": script})
    else:
        screen.verbatim(script)
