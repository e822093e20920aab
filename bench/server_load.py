"""Clients of a lock service in a process of their own: acquire and release, as fast as answers come.

    python -m bench.server_load (holdfast|redis|v3lock) PORT CONNECTIONS SECONDS

Prints one line of JSON: pairs a second, and the median pair in ms. The same loop drives every service that speaks
RESP, so what it costs is the same for all of them.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import hiredis
import uvloop

from holdfast.engines.resp.wire import pack

RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"
TTL_MS = 60_000


def holdfast(me: str) -> Any:
    """HF.ACQUIRE and HF.RELEASE, each connection with a session of its own."""
    answer = yield pack(("HF.OPEN", f"load{me}", f"a_secret_of_nobody_else_{me}", TTL_MS))
    assert answer[0] == b"open", answer
    for number in itertools.count():
        claim = f"load{me}-{number}"
        answer = yield pack(("HF.ACQUIRE", claim, f"name-{me}-{number}", "WAIT", "0"))
        assert answer[0] == b"granted", answer
        answer = yield pack(("HF.RELEASE", claim))
        assert answer == b"OK", answer
        yield None


def redis(me: str) -> Any:
    """SET NX PX, and a script that deletes what is one's own."""
    sha = yield pack(("SCRIPT", "LOAD", RELEASE))
    for number in itertools.count():
        name = f"name-{me}-{number}"
        answer = yield pack(("SET", name, me, "NX", "PX", str(TTL_MS)))
        assert answer == b"OK", answer
        answer = yield pack(("EVALSHA", sha, "1", name, me))
        assert answer == 1, answer
        yield None


class Talk(asyncio.Protocol):
    """One connection that follows a script, one request at a time."""

    def __init__(self, script: Any, times: list[float]) -> None:
        self.script, self.times = script, times
        self.reader = hiredis.Reader()
        self.began = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(next(self.script))

    def data_received(self, data: bytes) -> None:
        self.reader.feed(data)
        answer = self.reader.gets()
        if answer is False:
            return
        say = self.script.send(answer)
        if say is None:
            self.times.append(time.perf_counter())
            say = next(self.script)
        self.transport.write(say)


def _given(talk: Talk) -> Talk:
    return talk


async def resp(script: Any, port: int, connections: int, seconds: float) -> list[list[float]]:
    """When each connection finished each of its pairs."""
    loop = asyncio.get_running_loop()
    finished: list[list[float]] = [[] for _ in range(connections)]
    talks = []
    for number, times in enumerate(finished):
        talk = Talk(script(f"{os.getpid()}x{number}"), times)
        await loop.create_connection(partial(_given, talk), "127.0.0.1", port)
        talks.append(talk)
    while not all(finished):  # noqa: ASYNC110  a look now and then is what disturbs the loop least
        await asyncio.sleep(0.01)
    await asyncio.sleep(seconds)
    for talk in talks:
        talk.transport.abort()
    return finished


async def v3lock(port: int, connections: int, seconds: float) -> list[list[float]]:
    """etcd's own lock service, by as many tasks over as many channels as there are connections."""
    # Only this one peer needs it: pip install grpcio.
    grpc: Any = importlib.import_module("grpc.aio")
    until = math.inf
    finished: list[list[float]] = [[] for _ in range(connections)]

    async def work(number: int, times: list[float]) -> None:
        nonlocal until
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
            call: Any = channel.unary_unary
            lease = varint(await call("/etcdserverpb.Lease/LeaseGrant")(b"\x08\x3c"), 2)
            lock, unlock = call("/v3lockpb.Lock/Lock"), call("/v3lockpb.Lock/Unlock")
            for turn in itertools.count():
                name = f"name-{number}-{turn}".encode()
                answer = await lock(b"\x0a" + bytes([len(name)]) + name + b"\x10" + encoded(lease))
                key = field(answer, 2)
                await unlock(b"\x0a" + bytes([len(key)]) + key)
                times.append(time.perf_counter())
                if len(times) == 1 and all(finished):
                    # As with the others: the time runs from when everybody has had a turn.
                    until = times[-1] + seconds
                if times[-1] > until:
                    return

    await asyncio.gather(*(work(number, times) for number, times in enumerate(finished)))
    return finished


def encoded(number: int) -> bytes:
    """A number in protobuf."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protobuf message, numbers and bytes."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            value |= (data[at] & 127) << shift
            at += 1
            if data[at - 1] < 128:
                return value
            shift += 7

    while at < len(data):
        tag = number()
        if tag & 7 == 0:
            yield tag >> 3, number()
        else:
            size = number()
            yield tag >> 3, data[at : at + size]
            at += size


def varint(data: bytes, wanted: int) -> int:
    return next(value for tag, value in fields(data) if tag == wanted and isinstance(value, int))


def field(data: bytes, wanted: int) -> bytes:
    return next(value for tag, value in fields(data) if tag == wanted and isinstance(value, bytes))


def main(kind: str, port: int, connections: int, seconds: float) -> None:
    """Work, and print what came of it. What was done before everybody had a first turn does not count."""
    if kind == "v3lock":
        finished = asyncio.run(v3lock(port, connections, seconds))
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            finished = runner.run(resp({"holdfast": holdfast, "redis": redis}[kind], port, connections, seconds))
    everything = sorted(moment for times in finished for moment in times)
    since = max(times[0] for times in finished)
    counted = sum(moment > since for moment in everything)
    gaps = [after - before for times in finished for before, after in itertools.pairwise(times) if after > since]
    rate = counted / (everything[-1] - since)
    print(json.dumps({"pairs_per_s": rate, "pair_ms": statistics.median(gaps) * 1000}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
