"""Every example runs, by several processes at once, and does what it says."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from itertools import combinations
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

Start = Callable[..., list[str]]


@pytest.fixture
def together(tmp_path: Path) -> Start:
    """Runs an example in several processes at once, with the arguments of each; what each printed."""

    def run(name: str, *arguments: list[str]) -> list[str]:
        environment = os.environ | {"HOLDFAST_URL": f"sqlite:///{tmp_path}/locks.db"}
        processes = [
            subprocess.Popen(
                [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py"), *each],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for each in arguments
        ]
        printed = []
        for process in processes:
            output, problem = process.communicate(timeout=100)
            assert (process.returncode, problem) == (0, ""), problem
            printed.append(output)
        return printed

    return run


def test_every_example_is_run_here() -> None:
    tested = {name.removeprefix("test_the_example_") for name in globals() if name.startswith("test_the_example_")}

    assert tested == {path.stem for path in EXAMPLES.glob("*.py")}


def test_the_example_cron_job(together: Start) -> None:
    printed = together("cron_job", *[["2026-01-31"]] * 3)
    printed += together("cron_job", ["2026-01-31"])

    assert sum("doing the job of 2026-01-31" in each for each in printed) == 1
    assert len({each.splitlines()[-1] for each in printed}) == 1
    assert "doing the job of 2026-02-01" in together("cron_job", ["2026-02-01"])[0]


def test_the_example_migration(together: Start, tmp_path: Path) -> None:
    printed = together("migration", *[[f"{tmp_path}/app.db"]] * 3)

    assert sorted(printed) == ["migrated to version 1\nready\n", "ready\n", "ready\n"]


def test_the_example_leader(together: Start, tmp_path: Path) -> None:
    printed = together("leader", [f"{tmp_path}/app.db", "a"], [f"{tmp_path}/app.db", "b"])

    assert all(f"everybody saw {name}" in each for name, each in zip("ab", printed, strict=True))
    with closing(sqlite3.connect(tmp_path / "app.db")) as database:
        rows = [row[0] for row in database.execute("SELECT made_by FROM plan ORDER BY number")]
    assert rows in (["a"] * 3 + ["b"] * 3, ["b"] * 3 + ["a"] * 3)


def test_the_example_transfer(together: Start, tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_text("1000")
    together("transfer", *[[str(tmp_path), *pair, "100"] for pair in (("a", "b"), ("b", "a"), ("b", "c"), ("c", "a"))])

    assert [(tmp_path / name).read_text() for name in "abc"] == ["1100", "900", "1000"]


def test_the_example_payment(together: Start) -> None:
    printed = together("payment", *[["77", "2000"]] * 3)
    failed = together("payment", ["78", "0"]) + together("payment", ["78", "500"])

    assert sum("the bank charges" in each for each in printed) == 1
    assert {each.splitlines()[-1] for each in printed} == {"{'payment': '77', 'charged': 2000}"}
    assert failed == ["failed: ValueError: nothing to charge\n"] * 2


def test_the_example_workers(together: Start) -> None:
    printed = together("workers", *[["3"]] * 3)
    done = [line.split()[0] for each in printed for line in each.splitlines()]

    assert sorted(done) == sorted(f"queue-{number}" for number in range(12))
    assert len(set(re.findall(r"token (\d+)", "".join(printed)))) == 1


def test_the_example_counter(together: Start) -> None:
    printed = together("counter", *[["20"]] * 3)

    assert max(int(each.split()[0]) for each in printed) == 60


def test_the_example_rate_limit(together: Start) -> None:
    printed = "".join(together("rate_limit", *[["5"]] * 4))
    calls = [(float(a), float(b)) for a, b in re.findall(r"from ([\d.]+) to ([\d.]+)", printed)]

    assert len(calls) == 20
    for three in combinations(calls, 3):
        assert max(begin for begin, _ in three) >= min(end for _, end in three), "three called at once"
