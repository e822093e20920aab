"""What an operation costs the servers and the client, against what there is already: `make bench ARGS=growth`.

    python -m bench.growth [--json] [--engine NAME] [--axis NAME] [--sizes 10,100] [--seconds S] [--limit S]

CPU time is measured, not time by the clock: other programs on the machine disturb it less. Each axis of an engine
has servers of its own; holders and the measured client are processes of their own (bench/growth_point.py).
"""

from __future__ import annotations

import argparse
import json
import re
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.growth_point import HOLDERS, Job, Point
from holdfast.cli import screen
from holdfast.verify.servers.etcd import EtcdServer
from holdfast.verify.servers.postgres import PostgresServer
from holdfast.verify.servers.process import Server
from holdfast.verify.servers.redis import RedisServer
from holdfast.verify.servers.zookeeper import ZooKeeperServer
from tests.servers.lock_server import LockServer

AXES = {
    "held": "a pair, locks that other sessions hold",
    "own": "a pair, locks that the same session holds",
    "heartbeats": "a heartbeat, locks that the session holds",
    "sessions": "a pair, other sessions",
    "queue": "a hand-off, waiters in the queue",
    "ring": "a refusal as a deadlock, links of the ring",
    "timeouts": "a wait of 1 s that is over, together with so many of one client",
}
SIZES = {
    "held": (0, 100, 1_000, 10_000, 100_000),
    "own": (0, 100, 1_000, 10_000, 90_000),
    "heartbeats": (0, 1_000, 10_000, 90_000),
    "sessions": (0, 100, 1_000, 3_000),
    "queue": (10, 100, 1_000, 5_000, 10_000),
    "ring": (2, 10, 100, 400),
    "timeouts": (100, 1_000, 5_000),
}
SESSIONS_PER_PROCESS = 500
LIMITS = "[limits]\nconnections_per_user = 10000\n"
Where = tuple[str, list[Server]]
"""A URL, and the servers behind it."""


@dataclass(frozen=True)
class Engine:
    """An engine, and how far its axes go on it."""

    start: Callable[[], AbstractContextManager[Where]]
    most: dict[str, int] = field(default_factory=dict)
    """The largest size of an axis, in place of larger ones. 0: the axis does not apply."""


def one(make: Callable[[], Server], options: str = "") -> Callable[[], AbstractContextManager[Where]]:
    """A single server."""

    @contextmanager
    def start() -> Iterator[Where]:
        with make() as server:
            yield f"{server.url}{options}", [server]  # type: ignore[attr-defined]

    return start


@contextmanager
def in_a_file() -> Iterator[Where]:
    with tempfile.TemporaryDirectory(prefix="holdfast-growth-") as folder:
        yield f"sqlite:///{Path(folder) / 'locks.db'}", []


@contextmanager
def in_memory() -> Iterator[Where]:
    yield "memory://", []


@contextmanager
def redlock() -> Iterator[Where]:
    with ExitStack() as stack:
        servers = [stack.enter_context(RedisServer()) for _ in range(5)]
        yield "redlock://" + ",".join(f"{server.host}:{server.port}" for server in servers), [*servers]


def zookeeper() -> ZooKeeperServer:
    return ZooKeeperServer(flags=["-Xmx1g"])


def postgres() -> PostgresServer:
    return PostgresServer({"max_connections": "1000"})


NO_DEADLOCKS = {"ring": 0}
ENGINES = {
    # What other processes hold is not seen in memory.
    "memory": Engine(in_memory, {"held": 0, "sessions": 0}),
    "sqlite": Engine(in_a_file),
    "redis": Engine(one(RedisServer)),
    "redlock": Engine(redlock, {"ring": 0, "sessions": 1_000}),
    "postgresql": Engine(one(postgres), {"sessions": 100}),
    # A lock takes a connection, and there are no heartbeats.
    "advisory": Engine(
        one(postgres, "?recipe=advisory&connections=100"),
        {"held": 0, "own": 80, "heartbeats": 0, "sessions": 100, "ring": 0},
    ),
    "zookeeper": Engine(one(zookeeper), {**NO_DEADLOCKS, "queue": 5_000}),
    "etcd": Engine(one(EtcdServer), {**NO_DEADLOCKS, "queue": 5_000}),
    "holdfast": Engine(one(lambda: LockServer(store="sqlite:///locks.db", config=LIMITS))),
}


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    engine: str
    axis: str
    size: int
    point: Point | None
    problem: str = ""

    @property
    def cells(self) -> list[str]:
        start = [self.engine, AXES[self.axis], f"{self.size:,}"]
        if self.point is None or not self.point.operations:
            return [*start, "", "", "", self.problem or "no operation was finished"]
        point = self.point
        spent = (point.client, point.server)
        return [
            *start,
            f"{point.operations:,.0f}",
            *(f"{1e6 * each / point.operations:,.0f}" for each in spent),
            point.note,
        ]


class Late(Exception):
    """A process was not ready in time, or failed."""


class Process:
    """A holder, or the measured client."""

    def __init__(self, job: Job, role: str) -> None:
        command = [sys.executable, "-m", "bench.growth_point", json.dumps(asdict(job)), role]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )

    def line(self, within: float) -> str:
        """What it prints. Late if that does not come."""
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(within):
                raise Late(f"not ready within {within:g} s")
        if text := self._process.stdout.readline():
            return text
        self._process.wait()
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").splitlines()
        # The last line of a traceback that names the error; those of a group are in a frame.
        named = [line.strip(" |") for line in said if re.match(r"[ |]*[\w.]+(Error|Unavailable|Request|Lost): ", line)]
        raise Late(named[-1] if named else f"ended with {self._process.returncode}")

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()


def measure(name: str, axis: str, sizes: Sequence[int], seconds: float, limit: float) -> Iterator[Row]:
    """The points of one axis, the smallest first: holders stay for the points that follow."""
    with ExitStack() as stack:
        url, servers = stack.enter_context(ENGINES[name].start())
        pids = [server.pid for server in servers]
        first = 0
        for number, size in enumerate(sizes):
            # A queue or a session of an earlier point is in another namespace.
            namespace = "growth" if axis in HOLDERS else f"growth-{number}"
            try:
                step = SESSIONS_PER_PROCESS if axis == "sessions" else max(1, size)
                for start in range(first, size, step) if axis in HOLDERS else ():
                    job = Job(axis, min(size, start + step), start, url, namespace, pids, seconds)
                    stack.enter_context(Process(job, "holder")).line(limit)
                first = size
                with Process(Job(axis, size, 0, url, namespace, pids, seconds), "client") as client:
                    yield Row(name, axis, size, Point(**json.loads(client.line(limit))))
            except Late as problem:
                yield Row(name, axis, size, None, str(problem))
                return


def rows(options: argparse.Namespace) -> Iterator[Row]:
    """All points that were asked for."""
    for name in options.engine or ENGINES:
        for axis in options.axis or AXES:
            most = ENGINES[name].most.get(axis)
            if most != 0:
                sizes = {min(size, most or size) for size in options.sizes or SIZES[axis]}
                yield from measure(name, axis, sorted(sizes), options.seconds, options.limit)


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one object per line")
    parser.add_argument("--engine", action="append", choices=[*ENGINES], help="only this one; may be repeated")
    parser.add_argument("--axis", action="append", choices=[*AXES], help="only this one; may be repeated")
    parser.add_argument("--sizes", type=numbers, help="for example 10,100, in place of those of each axis")
    parser.add_argument("--seconds", type=float, default=2.0, help="for how long a point is measured")
    parser.add_argument("--limit", type=float, default=120.0, help="for how long a point may take with its preparation")
    options = parser.parse_args()
    found = []
    for row in rows(options):
        found.append(row)
        if options.json:
            print(json.dumps(asdict(row)), flush=True)
        else:
            print("  ".join(row.cells), file=sys.stderr, flush=True)
    if not options.json:
        headings = ["engine", "operation, against", "size", "operations", "client us", "server us", ""]
        screen.table(headings, [row.cells for row in found])


if __name__ == "__main__":
    main()
