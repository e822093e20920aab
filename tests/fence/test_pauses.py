"""Every fence against holders that are stopped past their ttl, in real processes."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.errors import StaleToken
from holdfast.verify.servers.process import wait_until
from tests.fence.counters import Counter, open_counter
from tests.servers.uvicorn import UvicornServer

ROOT = Path(__file__).parents[2]
TTL = 0.4
PROCESSES, STOPPED = 8, 4
UPDATES = 2000
SLOW_UPDATES = {"s3": 160, "dynamo": 160}
"""moto serves a few hundred requests a second. With HOLDFAST_ALL_UPDATES=1 it gets as many as the others."""
UNFENCED_UPDATES = 80

KINDS = ["sqlite", "postgresql", "mariadb", "redis", "file", "s3", "dynamo", "http"]


class Scene:
    """One resource with a counter in it, a lock, and processes that count."""

    def __init__(self, kind: str, where: dict[str, Any], folder: Path) -> None:
        self.kind, self.where = kind, where
        self.lock_file, self.go = folder / "locks.db", folder / "go"
        self.locks = f"sqlite:///{self.lock_file}"
        self.counter: Counter = open_counter(kind, where)
        self.counter.create()

    def start(
        self, processes: int, stopped: int, share: int, *, fenced: bool = True, go: Path | None = None
    ) -> subprocess.Popen[str]:
        """Let processes count, some of them stopped at random while they hold the lock."""
        plan = {
            "counter": self.kind, "where": self.where, "locks": self.locks, "ttl": TTL, "processes": processes,
            "stopped": stopped, "share": share, "batch": 25, "fenced": fenced,
            "go": None if go is None else str(go),
        }  # fmt: skip
        command = [sys.executable, "-m", "tests.fence.worker", json.dumps(plan)]
        return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def count(self, updates: int, *, fenced: bool) -> int:
        """Count to the end; how often a write was refused."""
        share = updates // PROCESSES
        told = finished(self.start(PROCESSES, STOPPED, share, fenced=fenced))
        assert told["done"] == share * PROCESSES
        return told["refused"]


def finished(process: subprocess.Popen[str]) -> dict[str, int]:
    """What the processes told at their end."""
    said, problem = process.communicate(timeout=110)
    assert process.returncode == 0, problem
    told: dict[str, int] = json.loads(said.splitlines()[-1])
    return told


def stopped_outside_of_a_transaction(process: subprocess.Popen[str], lock_file: Path) -> int:
    """The id of a process that is stopped, and not inside of a transaction of the lock's engine.

    One that is would stop everybody who asks for the lock, and there would be no story to tell.
    """
    assert process.stdout is not None
    while True:
        stopped: int = json.loads(process.stdout.readline())["stopped"]
        with closing(sqlite3.connect(lock_file, timeout=0.2, isolation_level=None)) as engine:
            try:
                engine.execute("BEGIN IMMEDIATE")
                engine.execute("ROLLBACK")
                return stopped
            except sqlite3.OperationalError:
                os.kill(stopped, signal.SIGCONT)


def where_of(kind: str, request: pytest.FixtureRequest, folder: Path) -> dict[str, Any]:
    unique = f"counter-{uuid.uuid4().hex}"
    table = unique.replace("-", "_")
    match kind:
        case "sqlite":
            return {"path": str(folder / "counter.db"), "table": table}
        case "postgresql":
            return {"url": request.getfixturevalue("postgres_server").url, "table": table}
        case "mariadb":
            return {"settings": request.getfixturevalue("mariadb_server").settings, "table": table}
        case "redis":
            return {"url": request.getfixturevalue("redis_server").url, "key": unique}
        case "file":
            return {"path": str(folder / "counter")}
        case "s3":
            return {"settings": request.getfixturevalue("moto_server").settings, "bucket": unique}
        case "dynamo":
            return {"settings": request.getfixturevalue("moto_server").settings, "table": unique}
    return {"url": request.getfixturevalue("service").url}


@pytest.fixture
def service() -> Iterator[UvicornServer]:
    with UvicornServer("tests.fence.http_service:app") as server:
        yield server


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory where there is one: what is counted here need not survive a power cut."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as made:
        yield Path(made)


@pytest.fixture(params=KINDS)
def scene(request: pytest.FixtureRequest, folder: Path) -> Iterator[Scene]:
    made = Scene(request.param, where_of(request.param, request, folder), folder)
    yield made
    made.counter.close()


def test_a_holder_that_was_stopped_past_its_ttl_is_refused_when_it_wakes(scene: Scene) -> None:
    process = scene.start(processes=1, stopped=1, share=1, go=scene.go)
    stopped = stopped_outside_of_a_transaction(process, scene.lock_file)
    with holdfast.connect(scene.locks, ttl=5.0) as locks, locks.lock("counter", wait=30) as grant:
        scene.counter.write(100, grant.token)

        scene.go.touch()
        os.kill(stopped, signal.SIGCONT)
        # It stands in line again only after its write was refused.
        wait_until(lambda: bool(locks.inspect("counter").waiters), 30, "the holder that woke asking for the lock again")
        assert scene.counter.read() == 100

    assert finished(process) == {"done": 1, "refused": 1}
    assert scene.counter.read() == 101


def test_no_update_is_lost_although_holders_are_stopped_at_random(scene: Scene) -> None:
    updates = UPDATES if "HOLDFAST_ALL_UPDATES" in os.environ else SLOW_UPDATES.get(scene.kind, UPDATES)

    refused = scene.count(updates, fenced=True)

    assert scene.counter.read() == updates
    assert refused > 0


def test_without_the_fence_updates_are_lost(scene: Scene) -> None:
    """The control: if nothing were lost here, the test above would prove nothing."""
    scene.count(UNFENCED_UPDATES, fenced=False)

    assert scene.counter.read() < UNFENCED_UPDATES


def test_a_stale_token_is_refused_by_the_counter_itself(scene: Scene) -> None:
    scene.counter.write(1, 18)

    with pytest.raises(StaleToken):
        scene.counter.write(2, 17)
    assert scene.counter.read() == 1


def test_nobody_overtakes_who_has_read_under_its_token(scene: Scene) -> None:
    assert scene.counter.read(18) == 0

    with pytest.raises(StaleToken):
        scene.counter.write(1, 17)  # it was on its way when the later holder read
    scene.counter.write(1, 18)
    assert scene.counter.read(18) == 1


def test_an_update_is_lost_between_a_read_without_a_token_and_its_write(scene: Scene) -> None:
    """The control: the fence has not heard of the later holder yet, so it lets the former one pass."""
    value = scene.counter.read()
    scene.counter.write(value + 1, 17)

    scene.counter.write(value + 1, 18)

    assert scene.counter.read() == 1
