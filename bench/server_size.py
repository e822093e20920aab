"""A server that holds very much: what a lock costs in memory, a restart in time, and a hand-off in a long line."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.engines.resp.wire import Part, pack
from holdfast.verify.servers.process import ServerFailed, wait_until
from tests.servers.lock_server import LockServer, Wire

SESSIONS = 1_000
AT_ONCE = 500
TTL_MS = 3_600_000
HAND_OFFS = 400
LONGEST_START = 600.0


@dataclass(frozen=True)
class Filled:
    """A server with all the locks in it."""

    bytes_a_lock: float


def together(wire: Wire, requests: Sequence[tuple[Part, ...]]) -> list[Any]:
    """Send all of them, then read all answers."""
    wire.raw(b"".join(pack(request) for request in requests))
    return [wire.reply() for _ in requests]


def fill(wire: Wire, sessions: int, each: int) -> int:
    """Let so many sessions take so many locks each; how many are held."""
    for number in range(sessions):
        session = f"holder{number:04}"
        assert wire("HF.OPEN", session, f"a_secret_of_nobody_else_{number}", TTL_MS)[0] == "open"
        for start in range(0, each, AT_ONCE):
            requests: list[tuple[Part, ...]] = [
                ("HF.ACQUIRE", f"{session}-{lock}", f"orders:{number}:{lock}", "WAIT", "0")
                for lock in range(start, min(start + AT_ONCE, each))
            ]
            answers = together(wire, requests)
            assert all(answer[0] == "granted" for answer in answers), answers
    return sessions * each


def resident(pid: int) -> int:
    """Bytes of memory that a process has."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    raise LookupError("VmRSS")


def spent(pid: int) -> float:
    """CPU seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Size:
    """How many locks, and how many waiters."""

    def __init__(self, locks: int, waiters: int) -> None:
        self.locks, self.waiters = locks, waiters

    @contextmanager
    def two_servers(self, store: str) -> Iterator[tuple[LockServer, LockServer]]:
        with LockServer(store=store) as empty, LockServer(store=store) as full:
            yield empty, full

    def fill(self, server: LockServer) -> Filled:
        """Take all locks."""
        before = resident(server.pid)
        with server.speak() as wire:
            held = fill(wire, SESSIONS, self.locks // SESSIONS)
        return Filled((resident(server.pid) - before) / held)

    def restart(self, server: LockServer) -> tuple[float, float]:
        """Kill it; how long it takes to be ready again, by the clock and in CPU seconds."""
        server.kill()
        began = time.perf_counter()
        try:
            server.start()
        except ServerFailed:
            # A busy machine: it is measured all the same.
            wait_until(server.is_ready, LONGEST_START, "a start")
        return time.perf_counter() - began, spent(server.pid)

    def hand_off_ms(self, store: str, waiters: int) -> float:
        """The median release that hands a lock on to the next of so many. Each session waits in several places."""
        sessions = min(waiters, 100)
        with LockServer(store=store, config="[limits]\nwaiters_per_lock = 1000000\n") as server:
            wires = [server.speak() for _ in range(sessions)]
            for number, wire in enumerate(wires):
                wire("HF.OPEN", f"waiter{number:04}", f"a_secret_of_nobody_else_{number}", TTL_MS)

            def claim(number: int) -> str:
                return f"waiter{number % sessions:04}-{number}"

            def acquire(number: int) -> tuple[Part, ...]:
                # An owner each: whoever waits once for a lock cannot wait for itself.
                return ("HF.ACQUIRE", claim(number), "hot", "OWNER", f"owner-{number}")

            # In one order across all connections: the next in line is always known.
            assert wires[0](*acquire(0))[0] == "granted"
            line = waiters + 1
            for at, wire in enumerate(wires):
                mine = [number for number in range(1, line) if number % sessions == at]
                for start in range(0, len(mine), AT_ONCE):
                    together(wire, [acquire(number) for number in mine[start : start + AT_ONCE]])
            order = [0, *(number for at in range(sessions) for number in range(1, line) if number % sessions == at)]
            times = []
            for head in range(min(HAND_OFFS, waiters)):
                number = order[head]
                began = time.perf_counter()
                answer = wires[number % sessions]("HF.RELEASE", claim(number))
                times.append(time.perf_counter() - began)
                assert answer == "OK", answer
                if waiters <= HAND_OFFS:
                    # Stay as long as it is: whoever has been served stands in line again, as another claim.
                    order.append(line)
                    wires[line % sessions](*acquire(line))
                    line += 1
            return statistics.median(times) * 1000
