"""System calls that strace lets fail."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.verify import syscalls
from tests.servers.process import wait_until

SYNCS = """
import os, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
for _ in sys.stdin:
    try:
        os.fsync(file)
        print("synced", flush=True)
    except OSError as error:
        print(error.errno, flush=True)
"""


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """One that syncs a file for each line that it reads."""
    command = [sys.executable, "-c", SYNCS, str(tmp_path / "file")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def answer(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def tracer_of(process: subprocess.Popen[str]) -> int:
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("TracerPid:")))


def test_calls_fail_until_the_end_of_the_with(process: subprocess.Popen[str]) -> None:
    assert answer(process) == "synced"
    with syscalls.failing(process.pid, "fsync"):
        assert answer(process) == "5"
    assert answer(process) == "synced"


def test_a_tracer_that_does_not_come_to_its_end_is_killed(
    process: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syscalls, "PATIENCE", 0.2)
    with syscalls.failing(process.pid, "fsync"):
        wait_until(lambda: tracer_of(process) > 0, 10.0, "the tracer")
        os.kill(tracer_of(process), signal.SIGSTOP)
    assert tracer_of(process) == 0
    assert answer(process) == "synced"
