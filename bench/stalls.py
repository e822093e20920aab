"""For how long one client's requests keep another client waiting: `python -m bench.stalls`.

Each case fills the table of a server of its own, and then sends what is expensive, while a second client pings. Beside
the longest ping, which other processes on the machine can make longer, it shows the CPU time of the server's longest
turn, and of the longest commit in SQLite's thread.
"""

from __future__ import annotations

import argparse
import http.client
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import hiredis

from holdfast.engines.resp.wire import pack
from holdfast.verify.servers.etcd import EtcdServer
from holdfast.verify.servers.lock_server import LockServer
from holdfast.verify.servers.process import free_port

DAY_MS = 86_400_000
SECRET = "A" * 22
AIM_MS = 50.0
AT_ONCE = 1_000
WITHIN = 120.0


class Wire:
    """A connection that speaks RESP."""

    def __init__(self, server: LockServer) -> None:
        self._socket = socket.create_connection((server.host, server.port), WITHIN)
        self._reader = hiredis.Reader(encoding="utf-8")

    def __call__(self, *parts: Any) -> Any:
        return self.all([parts])[0]

    def send(self, *parts: Any) -> None:
        """Ask without waiting for the answer."""
        self._socket.sendall(pack(parts))

    def send_some(self, data: bytes) -> None:
        """As much of this as the system takes at once."""
        self._socket.setblocking(False)
        self._socket.send(data)

    def all(self, requests: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The replies to requests that go together."""
        self._socket.sendall(b"".join(map(pack, requests)))
        found: list[Any] = []
        while len(found) < len(requests):
            reply = self._reader.gets()
            if reply is False:
                data = self._socket.recv(1 << 16)
                if not data:
                    raise EOFError("the server closed the connection")
                self._reader.feed(data)
            else:
                found.append(reply)
        return found


@dataclass
class Stage:
    """A server, and a client of it that asks for much."""

    server: LockServer
    http_port: int
    sessions: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.wire = self.connect()

    def connect(self) -> Wire:
        """A connection with a session of its own, whose id is the last of `sessions`."""
        wire = Wire(self.server)
        self.sessions.append(f"session{len(self.sessions):03d}")
        while not isinstance(wire("HF.OPEN", self.sessions[-1], SECRET, DAY_MS), list):
            time.sleep(0.01)  # a server of a cluster does not lead at once
        return wire

    def all(self, requests: Sequence[tuple[Any, ...]], wire: Wire | None = None) -> list[Any]:
        """The replies to many requests."""
        wire = wire or self.wire
        parts = (requests[start : start + AT_ONCE] for start in range(0, len(requests), AT_ONCE))
        return [reply for part in parts for reply in wire.all(part)]


Case = Callable[[Stage, int], Iterator[None]]
"""Fills the table, yields, and then sends what is expensive."""


def ring(stage: Stage, count: int) -> Iterator[None]:
    """Each of `count` owners holds a lock and waits for the next one's; the last closes the ring."""
    session = stage.sessions[0]
    per = 45_000
    wires = [stage.wire, *(stage.connect() for _ in range((count - 1) // per))]
    for number, wire in enumerate(wires):
        session, mine = stage.sessions[number], range(number * per, min(count, (number + 1) * per))
        stage.all([("HF.ACQUIRE", f"{session}-h{i}", f"l{i}", "OWNER", f"o{i}") for i in mine], wire)
    for number, wire in enumerate(wires):
        session, mine = stage.sessions[number], range(number * per, min(count - 1, (number + 1) * per))
        stage.all([("HF.ACQUIRE", f"{session}-w{i}", f"l{i + 1}", "OWNER", f"o{i}") for i in mine], wire)
    yield
    asked = [("HF.ACQUIRE", f"{session}-x{i}", "l0", "OWNER", f"o{count - 1}") for i in range(20)]
    replies = stage.all(asked, wires[-1])
    assert all(str(reply).startswith("HFLIMIT") or reply[0] == "deadlock" for reply in replies), replies[0]


def readers(stage: Stage, count: int, waiting: bool = True) -> None:
    session = stage.sessions[0]
    if waiting:
        stage.wire("HF.ACQUIRE", f"{session}-w", "big", "OWNER", "w")
    stage.all([("HF.ACQUIRE", f"{session}-r{i}", "big", "SHARED", "OWNER", f"r{i}") for i in range(count)])
    stage.wire("HF.ACQUIRE", f"{session}-b", "other", "OWNER", "b")


def behind_readers(stage: Stage, count: int) -> Iterator[None]:
    """An owner that holds something else queues behind `count` readers."""
    readers(stage, count)
    session = stage.sessions[0]
    yield
    for i in range(20):
        assert stage.wire("HF.ACQUIRE", f"{session}-q{i}", "big", "OWNER", "b")[0] == "queued"
        stage.wire("HF.LEAVE", f"{session}-q{i}")


def granted_readers(stage: Stage, count: int) -> Iterator[None]:
    """A writer goes, and `count` readers are granted."""
    readers(stage, count)
    yield
    stage.wire("HF.RELEASE", f"{stage.sessions[0]}-w")
    last = f"{stage.sessions[0]}-r{count - 1}"
    while stage.wire("HF.LOOK", last)[0] != "granted":
        time.sleep(0.01)


def broken(stage: Stage, count: int, *flags: str) -> Iterator[None]:
    """`count` readers are told to go, or made to."""
    readers(stage, count, waiting=False)
    yield
    told, rest = 0, flags
    while True:
        reply = stage.wire("HF.BREAK", "big", *rest)
        more = reply.pop() if reply and isinstance(reply[-1], list) else None
        told += len(reply)
        if more is None:
            break
        rest = (*flags, "CURSOR", more[1])
    assert told == count


def renewed(stage: Stage, count: int) -> Iterator[None]:
    """A session beats of which `count` claims were taken."""
    session = stage.sessions[0]
    stage.all([("HF.ACQUIRE", f"{session}-r{i}", f"m-{i}", "MAXHOLD", 1, "OWNER", f"o{i}") for i in range(count)])
    time.sleep(3.0)
    yield
    stage.wire("HF.RENEW", "*")
    stage.all([("HF.RENEW", "*")] * 20)


def metrics(stage: Stage, count: int) -> Iterator[None]:
    """/metrics, with `count` names that are waited for."""
    session = stage.sessions[0]
    for mark in "hw":
        stage.all([("HF.ACQUIRE", f"{session}-{mark}{i}", f"l{i}", "OWNER", f"{mark}{i}") for i in range(count)])
    yield
    for _ in range(10):
        link = http.client.HTTPConnection("127.0.0.1", stage.http_port)
        link.request("GET", "/metrics")
        assert link.getresponse().read()
        link.close()


def above(stage: Stage, count: int) -> Iterator[None]:
    """An owner that holds something else wants a subtree with `count` names under it, and gives it up."""
    session = stage.sessions[0]
    stage.all([("HF.ACQUIRE", f"{session}-h{i}", f"db/l{i}", "OWNER", f"h{i}") for i in range(count)])
    stage.wire("HF.ACQUIRE", f"{session}-b", "other", "OWNER", "b")
    yield
    for i in range(20):
        assert stage.wire("HF.ACQUIRE", f"{session}-s{i}", "db", "SUBTREE", "OWNER", "b")[0] == "queued"
        stage.wire("HF.LEAVE", f"{session}-s{i}")


def below(stage: Stage, count: int) -> Iterator[None]:
    """A subtree is given back for which claims on `count` names under it wait."""
    session = stage.sessions[0]
    stage.wire("HF.ACQUIRE", f"{session}-s", "db", "SUBTREE", "OWNER", "s")
    stage.all([("HF.ACQUIRE", f"{session}-h{i}", f"db/l{i}", "OWNER", f"h{i}") for i in range(count)])
    yield
    stage.wire("HF.RELEASE", f"{session}-s")
    while stage.wire("HF.LOOK", f"{session}-h{count - 1}")[0] != "granted":
        time.sleep(0.01)


def ended(stage: Stage, count: int) -> Iterator[None]:
    """A session with `count` claims ends."""
    session = stage.sessions[0]
    readers(stage, count - 2)
    rival = stage.connect()
    rival("HF.ACQUIRE", f"{stage.sessions[-1]}-1", "big", "OWNER", "rival")
    yield
    stage.wire("HF.CLOSE", session)
    while rival("HF.LOOK", f"{stage.sessions[-1]}-1")[0] != "granted":
        time.sleep(0.01)


def watched(stage: Stage, count: int) -> Iterator[None]:
    """A writer goes, `count` readers are granted, and a hundred watches hear of each."""
    for i in range(100):
        stage.wire("HF.WATCH", stage.sessions[0], f"w{i}", "")
    yield from granted_readers(stage, count)


def shown(stage: Stage, count: int) -> Iterator[None]:
    """Listings of `count` locks with long texts."""
    session = stage.sessions[0]
    note = "z" * 900
    stage.all([("HF.ACQUIRE", f"{session}-h{i}", f"l{i}", "OWNER", f"o{i}", "NOTE", note) for i in range(count)])
    yield
    for _ in range(10):
        stage.wire("HF.LIST", "", "COUNT", 2_000)


def scanned(stage: Stage, count: int) -> Iterator[None]:
    """An owner queues behind 60 readers that all wait for a subtree with `count` names."""
    session = stage.sessions[0]
    stage.all([("HF.ACQUIRE", f"{session}-h{i}", f"db/l{i}", "OWNER", f"h{i}") for i in range(count)])
    stage.all([("HF.ACQUIRE", f"{session}-q{i}", "q", "SHARED", "OWNER", f"r{i}") for i in range(60)])
    stage.all([("HF.ACQUIRE", f"{session}-s{i}", "db", "SUBTREE", "SHARED", "OWNER", f"r{i}") for i in range(60)])
    stage.wire("HF.ACQUIRE", f"{session}-b", "other", "OWNER", "b")
    yield
    for i in range(20):
        assert stage.wire("HF.ACQUIRE", f"{session}-x{i}", "q", "OWNER", "b")[0] == "queued"
        stage.wire("HF.LEAVE", f"{session}-x{i}")


def entered_again(stage: Stage, count: int) -> Iterator[None]:
    """`count` readers have entered again; 2,000 requests to write come together."""
    session = stage.sessions[0]
    again = ("SHARED", "REENTRANT")
    stage.all([("HF.ACQUIRE", f"{session}-q{i}", "q", "SHARED", "OWNER", f"r{i}") for i in range(count)])
    stage.all([("HF.ACQUIRE", f"{session}-e{i}", "q", *again, "OWNER", f"r{i}") for i in range(count - 1)])
    yield
    stage.all([("HF.ACQUIRE", f"{session}-x{i}", "q", "OWNER", f"x{i}", "WAIT", 0) for i in range(2_000)])


def dead_writers(stage: Stage, count: int) -> Iterator[None]:
    """9,900 writers of a session that ends wait before `count` readers, and the holder goes."""
    session, ending = stage.sessions[0], stage.connect()
    other, last = stage.sessions[-1], f"{session}-r{count - 1}"
    stage.wire("HF.ACQUIRE", f"{session}-h", "q", "OWNER", "h")
    stage.all([("HF.ACQUIRE", f"{other}-w{i}", "q", "OWNER", f"w{i}") for i in range(9_900)], ending)
    stage.all([("HF.ACQUIRE", f"{session}-r{i}", "q", "SHARED", "OWNER", f"r{i}") for i in range(count)])
    yield
    ending.send("HF.CLOSE", other)
    stage.wire("HF.RELEASE", f"{session}-h")
    while stage.wire("HF.LOOK", last)[0] != "granted":
        time.sleep(0.01)


def dead_names(stage: Stage, count: int) -> Iterator[None]:
    """A listing, while a session with `count` names ends."""
    ending = stage.connect()
    session = stage.sessions[-1]
    stage.all([("HF.ACQUIRE", f"{session}-h{i}", f"l{i}") for i in range(count)], ending)
    yield
    ending.send("HF.CLOSE", session)
    for _ in range(5):
        stage.wire("HF.LIST", "", "COUNT", 10)


def ended_together(stage: Stage, count: int) -> Iterator[None]:
    """`count` sessions end at one moment; a client asks for its position again and again."""
    session, other = stage.sessions[0], Wire(stage.server)
    for mark in "hw":
        stage.wire("HF.ACQUIRE", f"{session}-{mark}", "q", "OWNER", mark)
    until = time.time() + 8 + count / 2_000
    for start in range(0, count, AT_ONCE):
        left = int((until - time.time()) * 1_000)
        some = range(start, min(count, start + AT_ONCE))
        other.all([("HF.OPEN", f"dead{i:06}", SECRET, left) for i in some])
    time.sleep(max(0.0, until - time.time() - 0.3))
    yield
    over = time.time() + 2
    while time.time() < over:
        stage.wire.all([("HF.LOOK", f"{session}-w")] * 200)


def waits_over(stage: Stage, count: int) -> Iterator[None]:
    """`count` waits are over at one moment."""
    session = stage.sessions[0]
    stage.wire("HF.ACQUIRE", f"{session}-h", "q", "OWNER", "h")
    until = time.time() + 5 + count / 4_000
    for start in range(0, count, AT_ONCE):
        left = int((until - time.time()) * 1_000)
        some = range(start, min(count, start + AT_ONCE))
        stage.wire.all([("HF.ACQUIRE", f"{session}-w{i}", "q", "OWNER", f"w{i}", "WAIT", left) for i in some])
    time.sleep(max(0.0, until - time.time() - 0.3))
    yield
    while stage.wire("HF.LOOK", f"{session}-w{count - 1}")[0] == "queued":
        time.sleep(0.05)


def flood(stage: Stage, count: int) -> Iterator[None]:
    """`count` connections, each with a pipeline of 800 plain pairs."""
    wires, pipelines = [stage.connect() for _ in range(count)], []
    for session in stage.sessions[1:]:
        pairs = (
            (("HF.ACQUIRE", f"{session}-{i}", f"{session}{i}"), ("HF.RELEASE", f"{session}-{i}")) for i in range(800)
        )
        pipelines.append(b"".join(pack(acquire) + pack(release) for acquire, release in pairs))
    yield
    for wire, data in zip(wires, pipelines, strict=True):
        wire.send_some(data)
    time.sleep(2.0)


CASES: dict[str, tuple[Case, int]] = {
    "nothing": (lambda stage, count: iter([None, None][:1]), 0),
    "ring of 45,000": (ring, 45_000),
    "ring of 420,000": (ring, 420_000),
    "ring of 400, refused as a deadlock": (ring, 400),
    "queued behind 90,000 readers": (behind_readers, 90_000),
    "90,000 readers granted": (granted_readers, 90_000),
    "HF.BREAK of 90,000": (broken, 90_000),
    "HF.BREAK FORCE of 90,000": (lambda stage, count: broken(stage, count, "FORCE"), 90_000),
    "HF.RENEW with 99,000 claims gone": (renewed, 99_000),
    "/metrics with 45,000 queues": (metrics, 45_000),
    "subtree over 95,000 names": (above, 95_000),
    "subtree given back, 95,000 names waiting": (below, 95_000),
    "end of a session with 95,000 claims": (ended, 95_000),
    "5,000 readers granted, 100 watches": (watched, 5_000),
    "listings of 20,000 locks with long notes": (shown, 20_000),
    "queued behind 60 readers of one subtree, 20,000 names": (scanned, 20_000),
    "2,000 writers, 45,000 readers entered again": (entered_again, 45_000),
    "3,000 readers behind 9,900 dead writers": (dead_writers, 3_000),
    "listing past 95,000 dead names": (dead_names, 95_000),
    "8,000 sessions end together": (ended_together, 8_000),
    "20,000 waits are over together": (waits_over, 20_000),
    "500 connections with 800 pipelined pairs": (flood, 500),
}


class Pings:
    """A client that asks for next to nothing, all the time."""

    def __init__(self, server: LockServer) -> None:
        self.longest = 0.0
        self._wire = Wire(server)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._over.wait(0.002):
            began = time.perf_counter()
            self._wire("PING")
            self.longest = max(self.longest, time.perf_counter() - began)

    @contextmanager
    def going(self) -> Iterator[Pings]:
        self._thread.start()
        try:
            yield self
        finally:
            self._over.set()
            self._thread.join()


class TimedServer(LockServer):
    """Notes the CPU time of its turns and commits."""

    @property
    def notes(self) -> Path:
        return self.folder / "turns"

    @property
    def program(self) -> list[str]:
        return ["bench.timed_server", str(self.notes)]

    def longest(self, what: str, since: float) -> float:
        """Milliseconds of CPU time that a turn or a commit took at most, since a moment; 0 if none took long."""
        lines = self.notes.read_text().splitlines() if self.notes.exists() else []
        found = (line.split() for line in lines)
        return max((float(spent) for kind, at, spent in found if kind == what and float(at) >= since), default=0.0)


class Found(NamedTuple):
    """What a case came to, in milliseconds; `took` in seconds."""

    ping: float
    turn: float
    commit: float
    took: float


def measure(case: Case, count: int, store: str) -> Found:
    """Run one case on a server of its own."""
    port = free_port()
    with TimedServer("--http", f"127.0.0.1:{port}", store=store) as server:
        stage = Stage(server, port)
        steps = case(stage, count)
        next(steps, None)
        with Pings(server).going() as pings:
            since, began = time.time(), time.perf_counter()
            next(steps, None)
            took = time.perf_counter() - began
            time.sleep(0.3)
        return Found(pings.longest * 1000, server.longest("turn", since), server.longest("commit", since), took)


def measured(case: Case, count: int, store: str) -> Found:
    """The same; a cluster's store gets an etcd of its own."""
    if store != "etcd":
        return measure(case, count, store)
    with EtcdServer() as etcd:
        return measure(case, count, etcd.url)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", help="A part of a case's name; may be repeated.")
    parser.add_argument("--rounds", type=int, default=3, help="The figure is the median of so many servers.")
    parser.add_argument("--store", action="append", help="memory://, sqlite:///locks.db (both by default) or etcd.")
    wish = parser.parse_args()
    # The server is started in a folder of its own.
    root = str(Path(__file__).parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    for name, (case, count) in CASES.items():
        if wish.only and not any(part in name for part in wish.only):
            continue
        for store in wish.store or ["memory://", "sqlite:///locks.db"]:
            found = [measured(case, count, store) for _ in range(wish.rounds)]
            ping, turn, commit, took = (sorted(column)[len(found) // 2] for column in zip(*found, strict=True))
            verdict = "holds" if max(turn, commit) <= AIM_MS else "MISSED"
            print(
                f"{name:54} {store.partition(':')[0]:7} longest turn {turn:6.1f} ms CPU   commit {commit:5.1f} ms CPU"
                f"   ping {ping:7.1f} ms   all of it {took:6.2f} s   {verdict}",
                flush=True,
            )


if __name__ == "__main__":
    main()
