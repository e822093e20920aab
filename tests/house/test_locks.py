"""Locks of the client are made in one place, which knows what an interrupt may leave locked."""

from __future__ import annotations

from pathlib import Path

import holdfast

SOURCE = Path(holdfast.__file__).parent
PACKAGES = ("api", "engines", "locks", "runtime")


def test_a_client_makes_its_locks_by_new_lock() -> None:
    files = [path for package in PACKAGES for path in sorted((SOURCE / package).rglob("*.py"))]
    made = [str(path.relative_to(SOURCE)) for path in files if "threading.RLock()" in path.read_text()]

    assert made == ["runtime/calls.py"]
