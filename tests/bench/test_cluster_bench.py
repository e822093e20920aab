"""The benchmark of the replicated server runs, at a small size; what it finds is not judged here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_it_measures_pairs_and_gaps() -> None:
    options = ["--json", "--rounds", "1", "--seconds", "0.3", "--locks", "500", "--only", "64,failures"]
    done = subprocess.run(
        [sys.executable, "-m", "bench.cluster", *options], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == 4
    assert all(result["measured"] > 0 for result in results)
