"""The lock server against its peers, in one run: every promise that it makes about speed and size.

    python -m bench.server [--json] [--rounds N] [--seconds S] [--locks N] [--waiters N] [--only TEXT]

Rounds are interleaved, and what counts is the median ratio: what else the machine does hits all of them.
Everything runs on this machine: server, peers, and the clients in a process of their own (bench/server_load.py).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass

from bench.server_size import Size
from bench.server_tasks import measure_tasks
from holdfast.verify.servers.redis import RedisServer
from tests.servers.lock_server import LockServer
from tests.servers.process import Server, find, free_port

DURABLE = "sqlite:///locks.db"


@dataclass(frozen=True)
class Result:
    """One promise: what was measured, in the unit of the limit, and how far it may go."""

    what: str
    measured: float
    limit: float
    at_least: bool
    figures: dict[str, float]

    @property
    def kept(self) -> bool:
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit

    def __str__(self) -> str:
        sign = "≥" if self.at_least else "≤"
        figures = ", ".join(f"{name} {value:,.4g}" for name, value in self.figures.items())
        verdict = "kept  " if self.kept else "BROKEN"
        return f"{verdict}  {self.what}: {self.measured:.3g} ({sign} {self.limit})  [{figures}]"


class EtcdNode(Server):
    """One etcd, as it comes."""

    name = "etcd"

    def command(self) -> list[str]:
        client, peer = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{free_port()}"
        where = ["--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer]
        return [find("etcd"), "--data-dir", str(self.folder / "data"), "--log-level", "error", *where]


def load(kind: str, port: int, connections: int, seconds: float) -> dict[str, float]:
    """What clients in a process of their own got."""
    command = [sys.executable, "-m", "bench.server_load", kind, str(port), str(connections), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, float] = json.loads(done.stdout)
    return found


class Peers:
    """The servers that are compared, each started when it is first needed."""

    def __init__(self, stack: ExitStack, rounds: int, seconds: float) -> None:
        self._stack, self.rounds, self.seconds = stack, rounds, seconds
        self._running: dict[str, Server] = {}
        self._make: dict[str, Callable[[], Server]] = {
            "ours": lambda: LockServer(store=DURABLE),
            "redis always": lambda: RedisServer("--appendonly", "yes", "--appendfsync", "always"),
            "redis plain": RedisServer,
            "v3lock": EtcdNode,
        }

    def port(self, name: str) -> int:
        if name not in self._running:
            self._running[name] = self._stack.enter_context(self._make[name]())
        return self._running[name].port

    def interleaved(self, names: list[str], connections: int) -> dict[str, list[float]]:
        """Pairs a second of each, round by round."""
        found: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(self.rounds):
            for name in names:
                kind = {"ours": "holdfast", "v3lock": "v3lock"}.get(name, "redis")
                found[name].append(load(kind, self.port(name), connections, self.seconds)["pairs_per_s"])
        return found


def against(peers: Peers, connections: int, limits: dict[str, float]) -> Iterator[Result]:
    """Pairs a second as a share of each peer's."""
    found = peers.interleaved(["ours", *limits], connections)
    ours = found["ours"]
    for name, limit in limits.items():
        ratio = statistics.median(one / other for one, other in zip(ours, found[name], strict=True))
        figures = {"ours/s": statistics.median(ours), f"{name}/s": statistics.median(found[name])}
        yield Result(f"{connections} connections, durable pairs/s as a share of {name}", ratio, limit, True, figures)


def alone(peers: Peers) -> Result:
    """One connection: what a pair costs beyond its two syncs."""
    beyond, pairs, syncs = [], [], []
    for _ in range(peers.rounds):
        sync = sync_ms(peers.seconds / 2)
        pair = load("holdfast", peers.port("ours"), 1, peers.seconds)["pair_ms"]
        sync = min(sync, sync_ms(peers.seconds / 2))
        pairs.append(pair)
        syncs.append(sync)
        beyond.append(pair - 2 * sync)
    figures = {"pair ms": statistics.median(pairs), "sync ms": statistics.median(syncs)}
    return Result("one connection: ms that a pair costs beyond 2 syncs", statistics.median(beyond), 0.6, False, figures)


def sync_ms(seconds: float) -> float:
    """The median time of an append and its sync, where the servers' folders are, in a process of its own."""
    code = (
        "import os, statistics, tempfile, time\n"
        "file, times = tempfile.TemporaryFile(), []\n"
        f"until = time.perf_counter() + {seconds}\n"
        "while (began := time.perf_counter()) < until:\n"
        "    os.write(file.fileno(), bytes(4096)); os.fdatasync(file.fileno())\n"
        "    times.append(time.perf_counter() - began)\n"
        "print(statistics.median(times) * 1000)"
    )
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def through_the_client(peers: Peers) -> Iterator[Result]:
    """64 tasks through the Python client, against redis-py's asyncio Lock: on the loop that asyncio.run gives, and on
    uvloop, which is quicker for a client with many connections."""
    found: dict[tuple[str, bool], list[float]] = {}
    urls = {
        "holdfast": f"holdfast://127.0.0.1:{peers.port('ours')}",
        "redis-py": f"redis://127.0.0.1:{peers.port('redis plain')}/0",
    }
    for _ in range(peers.rounds):
        for uv in (False, True):
            for kind, url in urls.items():
                found.setdefault((kind, uv), []).append(measure_tasks(kind, url, 64, peers.seconds, uv))
    for uv, loop in ((False, "asyncio's own loop"), (True, "uvloop")):
        ours, theirs = found["holdfast", uv], found["redis-py", uv]
        ratio = statistics.median(one / other for one, other in zip(ours, theirs, strict=True))
        figures = {"ours/s": statistics.median(ours), "redis-py/s": statistics.median(theirs)}
        yield Result(f"64 tasks on {loop}, pairs/s as a multiple of redis-py's Lock", ratio, 5, True, figures)


def sized(size: Size, rounds: int, seconds: float) -> Iterator[Result]:
    """A million locks, and a long line."""
    with size.two_servers(DURABLE) as (empty, full):
        filled = size.fill(full)
        yield Result("bytes of memory a lock", filled.bytes_a_lock, 1024, False, {"locks": size.locks})
        ratios = []
        for _ in range(rounds):
            before = load("holdfast", empty.port, 64, seconds)["pairs_per_s"]
            ratios.append(load("holdfast", full.port, 64, seconds)["pairs_per_s"] / before)
        yield Result("pairs/s beside them, as a share of an empty server's", statistics.median(ratios), 0.8, True, {})
        seconds_to_start, cpu = size.restart(full)
        figures = {"locks": float(size.locks), "CPU s": cpu}
        yield Result("seconds until it is ready after a kill", seconds_to_start, 15, False, figures)
    short, long = [], []
    for _ in range(rounds):
        short.append(size.hand_off_ms(DURABLE, 10))
        long.append(size.hand_off_ms(DURABLE, size.waiters))
    ratio = statistics.median(one / other for one, other in zip(long, short, strict=True))
    figures = {"10 waiters ms": statistics.median(short), f"{size.waiters} waiters ms": statistics.median(long)}
    yield Result(f"a hand-off with {size.waiters} waiters, as a multiple of one with 10", ratio, 1.2, False, figures)


@contextmanager
def peers_of(rounds: int, seconds: float) -> Iterator[Peers]:
    with ExitStack() as stack:
        yield Peers(stack, rounds, seconds)


def results(options: argparse.Namespace) -> Iterator[Result]:
    """Every promise in turn, or those asked for."""
    size = Size(options.locks, options.waiters)
    with peers_of(options.rounds, options.seconds) as peers:
        parts: dict[str, Callable[[], Iterator[Result]]] = {
            "64": lambda: against(peers, 64, {"redis always": 0.8, "redis plain": 0.2}),
            "256": lambda: against(peers, 256, {"redis always": 0.6}),
            "v3lock": lambda: against(peers, 64, {"v3lock": 5}),
            "alone": lambda: iter([alone(peers)]),
            "client": lambda: through_the_client(peers),
            "size": lambda: sized(size, options.rounds, options.seconds),
        }
        for name, part in parts.items():
            if options.only in (None, name):
                yield from part()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--locks", type=int, default=1_000_000)
    parser.add_argument("--waiters", type=int, default=100_000)
    parser.add_argument("--only", help="64, 256, v3lock, alone, client or size")
    options = parser.parse_args()
    for result in results(options):
        print(json.dumps({**asdict(result), "kept": result.kept}) if options.json else result, flush=True)


if __name__ == "__main__":
    main()
