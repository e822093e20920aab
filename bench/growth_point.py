"""One point of `bench/growth.py`: a client in a process of its own, `python -m bench.growth_point JOB` (JSON).

It prepares what the point needs, measures operations for a while, and prints a line of JSON. The process then ends
without closing anything: what it holds ends with its servers.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from holdfast import aio
from holdfast.errors import Deadlock, HoldfastError, NotAcquired
from holdfast.verify.servers.process import family

CALLERS = 16
"""Tasks of the measured client that acquire and release, each its own name."""
AT_ONCE = 256
"""Acquires under way while a point is prepared."""
LONG_TTL = 60.0
"""Of sessions whose heartbeats are not to be part of a figure."""
SHORT_TTL = 3.0
HEARTBEAT_OF_TTL = 3
PER_SESSION = 1_000
"""Locks of one session where the number of sessions is not the question."""


@dataclass(frozen=True)
class Job:
    """What to measure, and where."""

    axis: str
    size: int
    first: int
    """How many of `size` are there already."""
    url: str
    namespace: str
    pids: Sequence[int]
    """The servers."""
    seconds: float


@dataclass(frozen=True)
class Point:
    """What was measured: CPU seconds of all servers and of this client, and how many operations these were for."""

    operations: float
    seconds: float
    client: float
    server: float
    note: str = ""
    """What else is to be said of it."""


def server_cpu(pids: Sequence[int]) -> float:
    """CPU seconds of processes, their children, and the children that have ended."""
    ticks = 0
    for pid in (each for parent in pids for each in family(parent)):
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue  # a child that ends: its parent counts it from now on
        ticks += sum(map(int, stat.rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


class Meter:
    """What is spent from now on."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self._server, self._client, self._began = server_cpu(pids), time.process_time(), time.perf_counter()

    def read(self, operations: float) -> Point:
        seconds, client = time.perf_counter() - self._began, time.process_time() - self._client
        return Point(operations, seconds, client, server_cpu(self._pids) - self._server)


async def all_of(makers: Sequence[Callable[[], Awaitable[Any]]]) -> None:
    """Await everything, a bounded number at once."""
    left = iter(makers)

    async def work() -> None:
        for make in left:
            await make()

    async with asyncio.TaskGroup() as group:
        for _ in range(min(AT_ONCE, len(makers))):
            group.create_task(work())


async def hold(client: aio.Client, mark: str, count: int) -> None:
    """Let a client hold so many locks."""
    await all_of([client.lock(f"{mark}-{number}").acquire for number in range(count)])


async def connect(job: Job, ttl: float = LONG_TTL) -> aio.Client:
    return await aio.connect(job.url, ttl=ttl, namespace=job.namespace)


async def pair(client: aio.Client, name: str) -> None:
    """Acquire and release."""
    grant = await client.lock(name).acquire()
    await grant.release()


async def pairs(job: Job, client: aio.Client) -> Point:
    """Acquire and release, each caller its own name."""
    done = 0

    async def call(number: int) -> None:
        nonlocal done
        while time.perf_counter() < until:
            await pair(client, f"pair-{number}")
            done += 1

    # The first pair of a client prepares scripts, statements and connections. All names are free again after it: this
    # process ends without closing its client, and the next point's client must not wait for the end of its session.
    await all_of([partial(pair, client, f"pair-{number}") for number in range(CALLERS)])
    until = time.perf_counter() + job.seconds
    meter = Meter(job.pids)
    await asyncio.gather(*(call(number) for number in range(CALLERS)))
    return meter.read(done)


async def held(job: Job) -> None:
    """Other sessions hold so many locks, each its share of them."""
    for start in range(job.first, job.size, PER_SESSION):
        await hold(await connect(job), f"held-{start}", min(PER_SESSION, job.size - start))


async def sessions(job: Job) -> None:
    """So many sessions, each of which holds a lock."""

    async def one(number: int) -> None:
        client = await connect(job)
        await client.lock(f"session-{number}").acquire()

    await all_of([partial(one, number) for number in range(job.first, job.size)])


async def own(job: Job) -> Point:
    """Pairs of a client that holds so many locks."""
    client = await connect(job)
    await hold(client, "own", job.size)
    return await pairs(job, client)


async def heartbeats(job: Job) -> Point:
    """Heartbeats of a client that holds so many locks, and does nothing else."""
    client = await connect(job, SHORT_TTL)
    await hold(client, "own", job.size)
    beats = max(1, round(2 * job.seconds * HEARTBEAT_OF_TTL / SHORT_TTL))
    meter = Meter(job.pids)
    await asyncio.sleep(beats * SHORT_TTL / HEARTBEAT_OF_TTL)
    return meter.read(beats)


def check(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Raise the error of a task that has failed."""
    for task in tasks:
        if task.done():
            task.result()


async def until_waited_for(client: aio.Client, name: str, waiters: int, tasks: Sequence[asyncio.Task[None]]) -> None:
    """Wait until so many claims wait for this name in the engine. The tasks are those that make them."""
    while True:
        check(tasks)
        found = await client.inspect(name)
        if len(found.waiters) >= waiters:
            return
        await asyncio.sleep(0.02)


async def until_all_wait(client: aio.Client, waiters: int, tasks: Sequence[asyncio.Task[None]]) -> None:
    """Wait until so many calls of a client wait, in the engine or behind others of the client."""
    while len(client._core.waiting) < waiters:
        check(tasks)
        await asyncio.sleep(0.02)


async def queue(job: Job) -> Point:
    """Hand-offs in one queue of so many waiters of one client; each enters it again after its release."""
    client = await connect(job)
    lock = client.lock("queue")
    grant = await lock.acquire()
    done = 0

    async def wait() -> None:
        nonlocal done
        while True:
            async with lock:
                done += 1

    waiters = [asyncio.create_task(wait()) for _ in range(job.size)]
    await until_all_wait(client, job.size, waiters)
    await grant.release()
    first = done
    meter = Meter(job.pids)
    await asyncio.sleep(job.seconds)
    check(waiters)
    return meter.read(done - first)


async def ring(job: Job) -> Point:
    """Requests that would close a ring of so many owners, each of which waits for the lock of the next."""
    client = await connect(job)
    names = [f"link-{number}" for number in range(job.size)]
    held = asyncio.Barrier(job.size)

    async def link(number: int) -> None:
        await client.lock(names[number]).acquire()
        await held.wait()
        await client.lock(names[(number + 1) % job.size]).acquire()

    # An owner is a task: this one is the first.
    links = [asyncio.create_task(link(number)) for number in range(1, job.size)]
    await client.lock(names[0]).acquire()
    await held.wait()
    for name in (names[0], *names[2:]):
        await until_waited_for(client, name, 1, links)
    closing = client.lock(names[1])
    done = 0
    until = time.perf_counter() + job.seconds
    meter = Meter(job.pids)
    while time.perf_counter() < until:
        try:
            await closing.acquire()
        except Deadlock:
            done += 1
    check(links)
    return meter.read(done)


async def timeouts(job: Job) -> Point:
    """Waits of one client for a lock that another one holds, which are over at the same time."""
    holder, client = await connect(job), await connect(job)
    await holder.lock("timeouts").acquire()
    # The first acquire of a client opens its session and prepares scripts, statements and connections.
    await hold(client, "warm", 1)
    took: list[float] = []
    told: Counter[str] = Counter()

    async def miss() -> None:
        began = time.perf_counter()
        try:
            await client.lock("timeouts").acquire(wait=1.0)
        except HoldfastError as error:
            told[type(error).__name__] += 1
        took.append(time.perf_counter() - began)

    meter = Meter(job.pids)
    await asyncio.gather(*(miss() for _ in range(job.size)))
    point = meter.read(told[NotAcquired.__name__])
    others = "".join(f", {number} {name}" for name, number in told.items() if name != NotAcquired.__name__)
    return replace(point, note=f"slowest answer {max(took):.2f} s{others}")


MEASURES: dict[str, Callable[[Job], Awaitable[Point]]] = {
    "own": own,
    "heartbeats": heartbeats,
    "queue": queue,
    "ring": ring,
    "timeouts": timeouts,
}
HOLDERS: dict[str, Callable[[Job], Awaitable[None]]] = {"held": held, "sessions": sessions}
"""What is prepared in a process of its own, so that its heartbeats are no part of the client's CPU time."""


async def main(job: Job, role: str) -> None:
    """Prepare and wait for the end, or measure."""
    if role == "holder":
        await HOLDERS[job.axis](job)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
    else:
        measure = MEASURES.get(job.axis)
        point = await (measure(job) if measure else pairs(job, await connect(job)))
        print(json.dumps(asdict(point)), flush=True)
    os._exit(0)


if __name__ == "__main__":
    # A client has some connections.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(main(Job(**json.loads(sys.argv[1])), sys.argv[2]))
