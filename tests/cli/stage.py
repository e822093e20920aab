"""Real `holdfast` processes on a real SQLite file, and how tests wait for what they do."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

import holdfast

T = TypeVar("T")
PATIENCE = 30.0
"""How long a test waits for what must happen; only a failing one waits so long."""
HOLDFAST = (sys.executable, "-m", "holdfast.cli.main")


def eventually(look: Callable[[], T | None], what: str) -> T:
    """Wait until something is true, and return it."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        found = look()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(f"never: {what}")


class Stage:
    """One engine, and the commands that run on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = folder / "locks.db"
        self.url = f"sqlite:///{self.database}"
        self.started: list[subprocess.Popen[str]] = []
        self.env = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST")}
        self.env |= {"HOLDFAST_URL": self.url, "COLUMNS": "200", "TERM": "xterm"}

    def start(self, *arguments: str, program: tuple[str, ...] = HOLDFAST, **options: Any) -> subprocess.Popen[str]:
        """Start a command; it is ended with the test."""
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(
            (*program, *arguments), text=True, **{"env": self.env, "cwd": self.folder, **pipes, **options}
        )
        self.started.append(process)
        return process

    def call(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        process = self.start(*arguments, **options)
        out, err = process.communicate(timeout=PATIENCE)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def json(self, *arguments: str) -> Any:
        """What a command prints with --json."""
        done = self.call(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def client(self, **options: Any) -> holdfast.Client:
        """A client of the same engine, in this process."""
        return holdfast.connect(self.url, app="rival", **options)

    def end(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.end()


def wait_for_file(path: Path) -> str:
    """The text of a file, once it has a whole line."""
    return eventually(lambda: re.sub(r"[^\n]*\Z", "", path.read_text()) if path.exists() else "", path.name)


def wait_for_waiters(client: holdfast.Client, name: str, count: int, kind: str = "lock") -> None:
    """Wait until so many stand in line."""
    eventually(lambda: len(client.inspect(name, kind=kind).waiters) == count, f"{count} waiting for {name}")


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not fetched yet does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def wait_for_end(pid: int) -> None:
    """Wait until a process that is not ours has ended."""
    eventually(lambda: not alive(pid), f"the end of process {pid}")


@contextlib.contextmanager
def ending(*pids: int) -> Iterator[None]:
    """Whatever happens, these processes end with the test."""
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def python(code: str) -> tuple[str, ...]:
    """A CMD in Python."""
    return ("--", sys.executable, "-c", code)


BEATING = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open(sys.argv[1], "a", buffering=1) as file:
    print(os.getpid(), file=file)
    while True:
        print(time.clock_gettime(time.CLOCK_BOOTTIME), file=file)
        time.sleep(0.005)
"""
"""A CMD that writes down that it lives, and does not go when it is asked to."""


def beats(path: Path) -> list[float]:
    """When a beating CMD lived."""
    return [float(line) for line in path.read_text().split("\n")[1:-1]]
