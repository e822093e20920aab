"""A Python that is too old is told so in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OLD = "import sys; sys.version_info, sys.version = (3, 10, 4, 'final', 0), '3.10.4 (main)'; "


@pytest.mark.parametrize("then", ["import holdfast", "import holdfast.aio", "from holdfast.cli.main import main"])
def test_an_old_python_is_named_with_what_is_needed(then: str) -> None:
    done = subprocess.run([sys.executable, "-c", OLD + then], capture_output=True, text=True)

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "ImportError: Holdfast needs Python 3.11 or newer; this is 3.10.4"


def test_make_names_it_too(tmp_path: Path) -> None:
    python = tmp_path / "python3"
    python.write_text('#!/bin/sh\n[ "$1" = -V ] && echo "Python 3.10.4" && exit\nexit 1\n')
    python.chmod(0o755)
    done = subprocess.run(
        ["make", f"PYTHON={python}", f"VENV={tmp_path}/venv", f"{tmp_path}/venv/.made"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip

    assert done.returncode == 2
    told = f"Holdfast needs Python 3.11 or newer; {python} is Python 3.10.4. Name another one: make PYTHON=python3.13"
    assert told in done.stderr.splitlines()
