"""A Python that is too old is told so in one line."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OLD = "import sys; sys.version_info, sys.version = (3, 10, 4, 'final', 0), '3.10.4 (main)'; "


TOLD = "Holdfast needs Python 3.11 or newer; this is 3.10.4"


@pytest.mark.parametrize("then", ["import holdfast", "import holdfast.aio", "from holdfast.cli.main import main"])
def test_an_old_python_is_named_with_what_is_needed(then: str) -> None:
    """By the import itself: nothing is shown but that, and where it is."""
    done = subprocess.run([sys.executable, "-c", OLD + then], capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == f"ImportError: {TOLD}"
    places = [line.split(",")[0].strip() for line in done.stderr.splitlines() if line.lstrip().startswith("File ")]
    assert places == ['File "<string>"', f'File "{ROOT}/src/holdfast/__init__.py"']


@pytest.mark.parametrize("arguments", [[], ["doctor"], ["run", "k", "--", "true"], ["ls", "--json"], ["--help"]])
def test_the_command_says_it_in_one_line(arguments: list[str]) -> None:
    then = f"sys.argv[1:] = {arguments}; from holdfast_command import main; main()"
    done = subprocess.run([sys.executable, "-c", OLD + then], capture_output=True, text=True)

    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"holdfast: {TOLD}\n")


# What a file may consist of that is read by every Python since 2.7, whatever it does then.
EVERYWHERE = (
    ast.Module, ast.Expr, ast.Constant, ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.Tuple, ast.List,
    ast.BinOp, ast.Mod, ast.Compare, ast.Lt, ast.Is, ast.Load, ast.Store, ast.Assign, ast.Import, ast.ImportFrom,
    ast.alias, ast.If, ast.Raise, ast.Try, ast.ExceptHandler, ast.FunctionDef, ast.arguments,
)  # fmt: skip


@pytest.mark.parametrize("package", ["holdfast", "holdfast_command"])
def test_every_old_python_can_read_the_file_that_refuses_it(package: str) -> None:
    """A file is read to its end before its first line runs."""
    text = (ROOT / "src" / package / "__init__.py").read_text()
    nodes = list(ast.walk(ast.parse(text, feature_version=(3, 7))))

    assert text.isascii()
    assert [ast.dump(node)[:80] for node in nodes if not isinstance(node, EVERYWHERE)] == []
    assert "__future__" not in [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
    assert [node.name for node in nodes if isinstance(node, ast.FunctionDef) and node.returns] == []
    assert [node for node in nodes if isinstance(node, ast.Raise) and node.cause] == []
    assert [node for node in nodes if isinstance(node, ast.Constant) and not isinstance(node.value, str | int)] == []


@pytest.mark.parametrize("major", [2, 3])
def test_make_names_it_too(tmp_path: Path, major: int) -> None:
    """Python 2 writes its version to stderr."""
    python = tmp_path / "python3"
    to = "" if major == 3 else " >&2"
    python.write_text(f'#!/bin/sh\n[ "$1" = -V ] && echo "Python {major}.10.4"{to} && exit\nexit 1\n')
    python.chmod(0o755)
    done = subprocess.run(
        ["make", f"PYTHON={python}", f"VENV={tmp_path}/venv", f"{tmp_path}/venv/.made"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip

    assert done.returncode == 2
    told = f"Holdfast needs Python 3.11 or newer; {python} is Python {major}.10.4."
    assert f"{told} Name another one: make PYTHON=python3.13" in done.stderr.splitlines()
