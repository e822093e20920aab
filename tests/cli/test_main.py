"""The command line as a whole: help, completion, and that it starts quickly."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.cli import exit_codes, main
from tests.cli.stage import Stage

OURS = ("run", "elect", "ls", "show", "why", "watch", "break", "guarantees", "tokens", "completion")
DOCS = Path(__file__).parents[2] / "docs" / "cli.md"


def test_help_names_every_command(stage: Stage) -> None:
    text = stage.call("--help").stdout

    assert set(OURS) <= {line.split()[0] for line in text.splitlines() if line.startswith("  ") and line.strip()}


@pytest.mark.parametrize("command", OURS)
def test_the_help_of_a_command_has_an_example(stage: Stage, command: str) -> None:
    arguments = ("tokens", "raise") if command == "tokens" else (command,)

    assert re.search(r"Examples?:\n +.*holdfast ", stage.call(*arguments, "--help").stdout)


@pytest.mark.parametrize("command", [name for name in OURS if name != "tokens"])
def test_every_command_knows_json(stage: Stage, command: str) -> None:
    assert "--json" in stage.call(command, "--help").stdout


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
