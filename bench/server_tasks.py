"""Pairs a second of one client that 64 tasks share, each with a lock of its own."""

from __future__ import annotations

import json
import subprocess
import sys

_CODE = """
import asyncio, json, sys, time
import uvloop

async def pairs(lock, until, done):
    while time.perf_counter() < until:
        grant = await lock.acquire()
        await (lock if grant is True else grant).release()
        done.append(time.perf_counter())

async def main(kind, url, tasks, seconds):
    if kind == "holdfast":
        from holdfast import aio
        client = await aio.connect(url, ttl=30.0)
        locks = [client.lock(f"task-{number}") for number in range(tasks)]
        close = client.close
    else:
        import redis.asyncio
        client = redis.asyncio.Redis.from_url(url)
        locks = [client.lock(f"task-{number}", timeout=30.0) for number in range(tasks)]
        close = client.aclose
    done = []
    until = time.perf_counter() + seconds
    await asyncio.gather(*(pairs(lock, until, done) for lock in locks))
    await close()
    since = done[0] + (done[-1] - done[0]) / 10
    print(json.dumps(sum(moment >= since for moment in done) / (done[-1] - since)))

kind, url, tasks, seconds, uv = json.loads(sys.argv[1])
with asyncio.Runner(loop_factory=uvloop.new_event_loop if uv else None) as runner:
    runner.run(main(kind, url, tasks, seconds))
"""


def measure_tasks(kind: str, url: str, tasks: int, seconds: float, uv: bool = False) -> float:
    """In a process of its own; on the loop that asyncio.run gives, or on uvloop."""
    given = json.dumps([kind, url, tasks, seconds, uv])
    done = subprocess.run([sys.executable, "-c", _CODE, given], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return float(json.loads(done.stdout))
