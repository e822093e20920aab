"""Engines of third parties, made for a test: found by their scheme in this process and in its children."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def install(place: Path, monkeypatch: pytest.MonkeyPatch, **schemes: str) -> None:
    """Register `scheme="module:Class"`, as an installed package would by its entry points."""
    package = place / "holdfast_third_party-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: holdfast-third-party\nVersion: 1.0\n")
    lines = [f"{scheme} = {where}" for scheme, where in schemes.items()]
    (package / "entry_points.txt").write_text("\n".join(["[holdfast.engines]", *lines]) + "\n")
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(place), str(ROOT), os.environ.get("PYTHONPATH", "")]))
