"""The command line as a whole: help, completion, and that it starts quickly."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from itertools import chain
from pathlib import Path

import click
import pytest

from holdfast.cli import exit_codes, main
from tests.cli.stage import Stage

OURS = ("run", "elect", "ls", "show", "why", "watch", "break", "guarantees", "tokens", "completion")
DOCS = Path(__file__).parents[2] / "docs" / "cli.md"


def test_help_names_every_command(stage: Stage) -> None:
    text = stage.call("--help").stdout

    assert set(OURS) <= {line.split()[0] for line in text.splitlines() if line.startswith("  ") and line.strip()}


def every_command() -> dict[str, click.Command]:
    """What can be run, with the words that run it."""
    context = click.Context(main.cli)
    found: dict[str, click.Command] = {}
    for name in main.COMMANDS:
        command = main.cli.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            found |= {f"{name} {below}": one for below, one in command.commands.items()}
        else:
            found[name] = command
    return found


def test_the_help_of_every_command_has_an_example() -> None:
    assert [
        name for name, command in every_command().items()
        if not re.search(rf"Examples?:\n +.*holdfast {name}", command.help or "")
    ] == []  # fmt: skip


def test_every_command_knows_json_but_the_server() -> None:
    assert [
        name for name, command in every_command().items() if "--json" not in {*chain(*(p.opts for p in command.params))}
    ] == ["serve"]  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [
        ("doctor", "nonsense"),
        ("bench", "nonsense"),
        ("postgres", "ddl", "--schema", "a b"),
        ("postgres", "ddl", "--role", ""),
        ("simulate", "storm", "--keep", "0,9999"),
        ("simulate", "storm", "--keep", "-1"),
    ],
)
def test_an_error_is_json_where_json_is_asked_for(stage: Stage, arguments: tuple[str, ...]) -> None:
    done = stage.call(*arguments, "--json")

    assert done.returncode == exit_codes.BAD_INPUT
    assert json.loads(done.stderr)["error"] == "InvalidRequest"


@pytest.mark.parametrize(
    ("package", "arguments", "remedy"),
    [
        ("psycopg", ("postgres", "ddl"), "pip install 'holdfast[postgresql]'"),
        ("uvloop", ("serve",), "pip install 'holdfast[server]'"),
        ("hiredis", ("cluster", "status", "holdfast://127.0.0.1"), "pip install 'holdfast[holdfast]'"),
        ("redis", ("verify", "redis"), "pip install 'holdfast[redis]'"),
    ],
)
def test_a_package_that_is_missing_is_named_with_what_installs_it(
    package: str, arguments: tuple[str, ...], remedy: str
) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; from holdfast.cli.main import main; main({arguments!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == exit_codes.BAD_INPUT, done.stderr
    assert remedy in done.stderr
    assert "Traceback" not in done.stderr


def test_a_place_that_cannot_be_written_to_is_told_before_the_run(stage: Stage, tmp_path: Path) -> None:
    for option, place in (("--keep", tmp_path), ("--report", tmp_path / "none" / "report.html")):
        done = stage.call("verify", "sqlite", option, str(place))

        assert done.returncode == exit_codes.BAD_INPUT
        assert option in done.stderr


def test_the_doctor_takes_the_engine_as_the_other_commands_do(stage: Stage) -> None:
    assert stage.json("doctor", "--url", "memory://here")["engine"] == "memory://here"


def test_help_imports_no_command_and_no_table_printer() -> None:
    code = (
        "import sys; from holdfast.cli.main import exit_code_of; exit_code_of(['--help']); "
        "print(*sorted(m for m in sys.modules if m.split('.')[0] == 'rich' or m.startswith('holdfast.cli.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1].split() == ["holdfast.cli.exit_codes", "holdfast.cli.main"]


def test_a_command_whose_module_is_missing_costs_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(main.COMMANDS, "absent", ("holdfast.cli.absent:absent", "Not there."))

    assert main.exit_code_of(["--help"]) == 0
    assert main.exit_code_of(["absent"]) == exit_codes.BAD_INPUT


def test_an_unknown_command_gives_2(stage: Stage) -> None:
    done = stage.call("nonsense")

    assert done.returncode == exit_codes.BAD_INPUT
    assert "No such command 'nonsense'" in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(stage: Stage, shell: str) -> None:
    script = stage.call("completion", shell).stdout

    assert "_HOLDFAST_COMPLETE" in script
    assert stage.json("completion", shell)["script"].strip() == script.strip()


def test_completion_without_a_shell_is_for_the_users_own(stage: Stage) -> None:
    stage.env["SHELL"] = "/usr/bin/fish"

    assert stage.call("completion").stdout == stage.call("completion", "fish").stdout


def complete(stage: Stage, words: str) -> set[str]:
    """What bash would offer after these words."""
    stage.env |= {"_HOLDFAST_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()))}
    return {line.partition(",")[2] for line in stage.call().stdout.splitlines()}


def test_completion_offers_the_commands(stage: Stage) -> None:
    assert set(OURS) <= complete(stage, "holdfast ")


def test_completion_offers_the_names_in_use(stage: Stage) -> None:
    with stage.client() as rival, rival.lock("db/users"), rival.semaphore("gpu", limit=2):
        assert complete(stage, "holdfast show ") == {"db/users", "gpu"}


def test_the_documentation_has_every_command_and_every_exit_code() -> None:
    text = DOCS.read_text()
    codes = [value for name, value in vars(exit_codes).items() if name.isupper()]

    assert [name for name in OURS if f"\n## {name}\n" not in text] == []
    assert [code for code in codes if f"| {code} |" not in text] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("ls", "--nonsense"),
        ("nonsense",),
        ("show",),
        ("run", "k"),
        ("run", "k", "--limit", "two", "--", "true"),
        ("fence", "ddl"),
        ("advise",),
        ("verify", "redis", "--keep", "/"),
    ],
)
def test_a_wrong_call_is_told_in_json_where_json_is_asked_for(stage: Stage, arguments: tuple[str, ...]) -> None:
    done = stage.call(arguments[0], "--json", *arguments[1:])

    told = json.loads(done.stderr)
    assert (done.returncode, done.stdout) == (exit_codes.BAD_INPUT, "")
    assert (told["error"], told["exit_code"]) == ("UsageError", exit_codes.BAD_INPUT)
    assert told["message"]


def test_a_json_option_of_cmd_is_not_ours(stage: Stage) -> None:
    done = stage.call("run", "--nonsense", "k", "--", "true", "--json")

    assert done.stderr.startswith("Usage: holdfast run ")
