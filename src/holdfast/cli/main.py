"""`holdfast`: puts the commands together, and turns every error into one line and an exit code.

A command is a file here and a row in the table below. Its module is imported only when the
command is used, so that one that is slow to import, or that is not installed, costs nobody else.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import logging
import os
import sys
from collections.abc import Sequence
from typing import Any, TextIO

import click

from holdfast.cli import exit_codes
from holdfast.errors import HoldfastError

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("holdfast.cli.run:run", "Run a command under a lock, like flock, across machines."),
    "elect": ("holdfast.cli.elect:elect", "Run a command only while leading an election."),
    "ls": ("holdfast.cli.ls:ls", "List the locks in use."),
    "show": ("holdfast.cli.show:show", "Show who holds a lock and who waits for it."),
    "why": ("holdfast.cli.why:why", "Explain who waits for whom."),
    "watch": ("holdfast.cli.watch:watch", "Follow what happens to locks, as it happens."),
    "break": ("holdfast.cli.breaking:break_lock", "Make the holders of a lock let go."),
    "guarantees": ("holdfast.cli.guarantees:guarantees", "Show what the engine promises."),
    "tokens": ("holdfast.cli.tokens:tokens", "Look after an engine's tokens."),
    "fence": ("holdfast.cli.fence:fence", "Make resources refuse an older token."),
    "postgres": ("holdfast.cli.postgres:postgres", "Prepare a PostgreSQL database."),
    "serve": ("holdfast.cli.serve:serve", "Run the lock server."),
    "cluster": ("holdfast.cli.cluster:cluster", "See how a cluster of lock servers is."),
    "doctor": ("holdfast.cli.doctor:doctor", "Check what an engine can really promise."),
    "verify": ("holdfast.cli.verify:verify", "Prove the promises, with faults on real servers."),
    "simulate": ("holdfast.cli.simulate:simulate", "Run the lock table in a simulated world."),
    "advise": ("holdfast.cli.advise:advise", "Recommend a lock, a fence, or what needs no lock."),
    "demo": ("holdfast.cli.demo:demo", "See a split brain, and the fence that stops it."),
    "bench": ("holdfast.cli.bench:bench", "Measure an engine."),
    "completion": ("holdfast.cli.completion:completion", "Print a shell completion script."),
}
"""Command -> where it is, and what `holdfast --help` says of it."""


class Commands(click.Group):
    """The commands of the table, each imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, (place, _) in COMMANDS.items() if _is_there(place)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place, _ = COMMANDS.get(cmd_name, ("", ""))
        if not place or not _is_there(place):
            return None
        module, _, attribute = place.partition(":")
        try:
            command = getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as error:
            from holdfast.engines.registry import how_to_get

            raise click.UsageError(f"'holdfast {cmd_name}' needs {how_to_get(error)}") from error
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[click.shell_completion.CompletionItem]:
        from click.shell_completion import CompletionItem

        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        return [CompletionItem(name, help=COMMANDS[name][1]) for name in names]

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except BrokenPipeError:
            # --help and --version print here; click would end with 1, which says something else.
            _stop_writing(sys.stdout)
            raise click.exceptions.Exit(exit_codes.BROKEN_PIPE) from None

    def invoke(self, ctx: click.Context) -> object:
        from holdfast.cli.interruption import Interrupted, Interruptible

        try:
            # Whoever is asked to end takes along what it has started: processes, servers, temporary files.
            with Interruptible():
                return super().invoke(ctx)
        except BrokenPipeError:
            _stop_writing(sys.stdout)
            ctx.exit(exit_codes.BROKEN_PIPE)
        except Interrupted as interrupted:
            ctx.exit(exit_codes.for_signal(interrupted.number))


def _is_there(place: str) -> bool:
    return importlib.util.find_spec(place.partition(":")[0]) is not None


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="holdfast", prog_name="holdfast")
def cli() -> None:
    """Locks with fencing tokens, on the engine that you already run.

    The engine is chosen by --url, else by $HOLDFAST_URL; without either it is the embedded
    SQLite file of this user.

    \b
    Examples:
      holdfast run nightly -- ./job.sh
      holdfast run --limit 4 gpu -- python train.py
      holdfast why nightly
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point: run a command and exit with its code."""
    _make_streams_usable()
    logging.basicConfig(format="holdfast: %(message)s", level=logging.WARNING)
    code = exit_code_of(arguments)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            _stop_writing(stream)
    sys.exit(code)


def exit_code_of(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit code. Errors are told in one line, without a traceback."""
    try:
        code = cli.main(args=arguments, prog_name="holdfast", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        # That nobody can be told changes nothing about what happened.
        with contextlib.suppress(OSError):
            error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt) as end:
        # click makes an Abort of both; one that comes of a question that got no answer has no cause.
        if isinstance(end, KeyboardInterrupt) or isinstance(end.__cause__, KeyboardInterrupt):
            from holdfast.cli.interruption import die_of_ctrl_c

            die_of_ctrl_c()
        return exit_codes.INTERRUPTED
    except BrokenPipeError:
        _stop_writing(sys.stdout)
        return exit_codes.BROKEN_PIPE
    except HoldfastError as error:
        _complain(str(error))
        return exit_codes.for_error(error)
    except OSError as error:
        # A disk that is full, or a place that may not be written to.
        _complain(str(error))
        return exit_codes.FAILED
    return code if isinstance(code, int) else exit_codes.OK


def one_line(text: str) -> str:
    """A message as one line."""
    return " ".join(text.split())


def _complain(text: str) -> None:
    with contextlib.suppress(OSError):
        click.echo(f"holdfast: {one_line(text)}", err=True)


def _make_streams_usable() -> None:
    """Give this process the streams that it was started without, and let none of them choke on a letter.

    CMD does not inherit what is opened here: what was closed is closed for it too.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - it lasts as long as we do
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def _stop_writing(stream: TextIO) -> None:
    """The reader is gone: what is still buffered has nowhere to go, and Python would exit with a code of its own."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())


if __name__ == "__main__":
    main()
