"""The benchmark of the lock server runs, at a small size; what it finds is not judged here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_it_measures_sizes_restarts_and_lines() -> None:
    options = ["--json", "--only", "size", "--locks", "2000", "--waiters", "500", "--rounds", "1", "--seconds", "0.3"]
    done = subprocess.run(
        [sys.executable, "-m", "bench.server", *options], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == 4
    assert all(result["measured"] > 0 for result in results)
