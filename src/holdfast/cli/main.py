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
import signal
import sys
from collections.abc import Sequence
from typing import Any, TextIO

import click

from holdfast.cli import exit_codes
from holdfast.errors import HoldfastError
from holdfast.text import one_line, printable

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


class Log(logging.Formatter):
    """The library's warnings as lines of this program, safe for a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(printable(line) for line in super().format(record).split("\n"))

    def formatMessage(self, record: logging.LogRecord) -> str:
        return one_line(super().formatMessage(record))


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point: run a command and exit with its code."""
    _make_streams_usable()
    handler = logging.StreamHandler()
    handler.setFormatter(Log("holdfast: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    try:
        code = exit_code_of(sys.argv[1:] if arguments is None else arguments)
    finally:
        # From here on everything is cleared away, and Ctrl-C at the exit prints no traceback.
        _set_ctrl_c(signal.default_int_handler, signal.SIG_DFL)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            _stop_writing(stream)
    sys.exit(code)


def exit_code_of(arguments: Sequence[str]) -> int:
    """Run a command; its exit code. Errors are told in one line or one JSON object, without a traceback."""
    try:
        _set_ctrl_c(signal.SIG_DFL, signal.default_int_handler)
        code = cli.main(args=list(arguments), prog_name="holdfast", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        kind = "UsageError" if isinstance(error, click.UsageError) else type(error).__name__
        return _complain(arguments, kind, _explained(error), error.exit_code, error.format_message())
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
        return _complain(arguments, type(error).__name__, f"holdfast: {error}", exit_codes.for_error(error), str(error))
    except OSError as error:
        # A disk that is full, or a place that may not be written to.
        return _complain(arguments, "OSError", f"holdfast: {error}", exit_codes.FAILED, str(error))
    return code if isinstance(code, int) else exit_codes.OK


def _set_ctrl_c(before: Any, after: Any) -> None:
    """Change what Ctrl-C does. Where it is ignored it stays ignored."""
    if signal.getsignal(signal.SIGINT) is before:
        signal.signal(signal.SIGINT, after)


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether --json is among the arguments of our own, those before `--`."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in own


def _explained(error: click.ClickException) -> str:
    """A wrong option with the usage and the way to the help, as click shows it, but the message on one line.

    The message has in it what the user wrote, and click up to 8.3.3 leaves the line breaks in that.
    """
    message = one_line(error.format_message())
    safe = click.ClickException(message)
    if isinstance(error, click.UsageError):
        safe = click.UsageError(message, error.ctx)
    shown = io.StringIO()
    safe.show(shown)
    return shown.getvalue().rstrip("\n")


def _complain(arguments: Sequence[str], kind: str, text: str, code: int, message: str) -> int:
    """Report an error on stderr; its exit code. A stderr that nobody reads changes nothing about what happened."""
    from holdfast.cli import screen

    with contextlib.suppress(OSError):
        if wants_json(arguments):
            screen.tell_document({"error": kind, "message": one_line(message), "exit_code": code})
        else:
            for line in text.split("\n"):
                screen.tell(line)
    return code


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
