"""Streams that are closed, full, or in another encoding: the exit code still says what happened."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.cli import exit_codes
from tests.cli.stage import HOLDFAST, PATIENCE, Stage, eventually, python
from tests.cli.test_main import every_command
from tests.cli.test_terminal import pass_by

CLOSED = ("<&-", ">&-", "2>&-", "<&- >&- 2>&-")


def in_shell(stage: Stage, redirections: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command as a shell starts it, whose exit code and output go to a file that nobody closes."""
    command = ["sh", "-c", f'exec "$@" {redirections}', "sh", *HOLDFAST, *arguments]
    return subprocess.run(command, env=stage.env, capture_output=True, text=True, check=False, timeout=PATIENCE)


@pytest.mark.parametrize("redirections", CLOSED)
def test_run_ends_with_the_code_of_cmd_where_a_stream_is_closed(stage: Stage, redirections: str) -> None:
    done = in_shell(stage, redirections, "run", "k", *python("raise SystemExit(7)"))

    assert (done.returncode, done.stderr) == (7, "")


def test_what_was_closed_is_closed_for_cmd_too(stage: Stage) -> None:
    found = stage.folder / "found"
    code = f"import os; open({str(found)!r}, 'w').write(' '.join(sorted(os.listdir('/proc/self/fd'))))"

    for redirections in CLOSED:
        assert in_shell(stage, redirections, "run", "k", *python(code)).returncode == 0
        inherited = found.read_text()
        subprocess.run(["sh", "-c", f'exec "$@" {redirections}', "sh", sys.executable, "-c", code], check=True)
        assert inherited == found.read_text()


@pytest.mark.parametrize("redirections", CLOSED)
@pytest.mark.parametrize("command", [("ls",), ("ls", "--json"), ("show", "k"), ("break", "k")])
def test_looking_ends_well_where_a_stream_is_closed(stage: Stage, command: tuple[str, ...], redirections: str) -> None:
    done = in_shell(stage, redirections, *command)

    assert (done.returncode, done.stderr) == (exit_codes.OK, "")


def test_advise_without_a_stdin_asks_nobody(stage: Stage) -> None:
    done = in_shell(stage, "<&-", "advise")

    assert done.returncode == exit_codes.BAD_INPUT
    assert "Answer with --what" in done.stderr


PRINTING = {
    "ls": ("ls",),
    "show": ("show", "k"),
    "why": ("why", "k"),
    "watch": ("watch",),
    "break": ("break", "k"),
    "guarantees": ("guarantees",),
    "tokens raise": ("tokens", "raise", "memory://", "--above", "1"),
    "fence ddl": ("fence", "ddl", "--dialect", "sqlite"),
    "postgres ddl": ("postgres", "ddl"),
    "cluster status": ("cluster", "status", "holdfast://127.0.0.1:1"),
    "doctor": ("doctor",),
    "verify": ("verify", "sqlite", "--seconds", "0.1", "--no-controls", "--workloads", "mutex", "--faults", "none"),
    "simulate": ("simulate",),
    "advise": ("advise", "--what", "value", "--machines", "one"),
    "demo": ("demo",),
    "bench": ("bench", "memory://", "--only", "pairs", "--rounds", "1", "--seconds", "0.01"),
    "completion": ("completion", "bash"),
    "serve": ("serve", "--help"),
}
"""How each command is made to print something. CMD prints for the other two, on its own account."""


def test_output_of_any_command_that_cannot_be_written_is_told_in_one_line(stage: Stage) -> None:
    assert {*PRINTING, "run", "elect"} == {*every_command()}
    with Path("/dev/full").open("w") as full, stage.client() as rival, rival.lock("held"):
        started = {name: stage.start(*arguments, stdout=full) for name, arguments in PRINTING.items()}
        started["--help"] = stage.start("--help", stdout=full)
        eventually(lambda: pass_by(rival) and started["watch"].poll() is not None, "the watch has seen something")
        told = {name: (process.communicate()[1], process.returncode) for name, process in started.items()}

    problem = "holdfast: [Errno 28] No space left on device"
    assert {code for _, code in told.values()} == {exit_codes.FAILED}, told
    assert [name for name, (err, _) in told.items() if problem not in err.splitlines()[-1:]] == []


def test_a_full_disk_is_told_in_json_where_json_is_asked_for(stage: Stage) -> None:
    with Path("/dev/full").open("w") as full:
        done = stage.call("ls", "--json", stdout=full)

    told = json.loads(done.stderr)
    assert (done.returncode, told["error"], told["exit_code"]) == (exit_codes.FAILED, "OSError", exit_codes.FAILED)


def test_help_whose_reader_has_gone_ends_as_any_output_does(stage: Stage) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = stage.call("--help", stdout=writer)
    os.close(writer)

    assert (done.returncode, done.stderr) == (exit_codes.BROKEN_PIPE, "")


@pytest.mark.parametrize("arguments", [("nonsense",), ("show", "a//b"), ("run", "a//b", "--", "true")])
def test_an_error_that_nobody_reads_keeps_its_code(stage: Stage, arguments: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = stage.call(*arguments, stderr=writer)
    os.close(writer)

    assert done.returncode == exit_codes.BAD_INPUT


def test_letters_that_the_output_cannot_show_are_written_otherwise(stage: Stage) -> None:
    stage.env["PYTHONIOENCODING"] = "latin-1"
    with stage.client() as rival, rival.lock("k"):
        done = stage.call("why", "k")

    assert done.returncode == exit_codes.OK, done.stderr
    assert "\\u2514\\u2500 held by rival" in done.stdout


def test_an_empty_cmd_is_not_found(stage: Stage) -> None:
    done = stage.call("run", "k", "--", "")

    assert done.returncode == exit_codes.NOT_FOUND
    assert "command not found" in done.stderr
