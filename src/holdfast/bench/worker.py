"""What a worker process does: `python -m holdfast.bench.worker`, with a job on its input, a line of JSON a message."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.bench.plan import Plan
from holdfast.bench.subject import Connection, from_data
from holdfast.bench.turns import Contest, now

Job = dict[str, Any]


def say(word: str, **more: Any) -> None:
    """Tell the parent."""
    sys.stdout.write(json.dumps({"word": word, **more}) + "\n")
    sys.stdout.flush()


def hear() -> str | None:
    """What the parent says next; None when it has nothing more to say."""
    line = sys.stdin.readline()
    return json.loads(line) if line else None


def take_turns(connection: Connection, job: Job) -> None:
    """Be some of the waiters of a contest."""
    plan = Plan(**job["plan"])
    takers = [connection.taker(job["lock"]) for _ in range(job["waiters"])]
    warm = connection.taker(f"{job['lock']}-warm")
    warm.acquire()
    warm.release()
    contest = Contest(takers)
    say("ready")
    hear()
    before = connection.requests()
    contest.start()
    contest.wait_until_met(plan)
    say("met")
    hear()
    contest.wait_until_enough(plan)
    say("enough")
    hear()
    contest.stop()
    after = connection.requests()
    say("done", turns=contest.turns, requests=None if before is None or after is None else after - before)


def alternate(connection: Connection, job: Job) -> None:
    """Take and give as told."""
    taker = connection.taker(job["lock"])
    warm = connection.taker(f"{job['lock']}-warm")
    warm.acquire()
    warm.release()
    say("ready")
    while (word := hear()) is not None:
        if word == "take":
            say("asking")
            taker.acquire()
            say("granted", at=now())
        else:
            released = now()
            taker.release()
            say("released", at=released)


def hold(connection: Connection, job: Job) -> None:
    """Hold many locks for a while; what that costs."""
    first = connection.taker("held-first")
    first.acquire()
    threads, memory = threading.active_count(), resident()
    takers = [connection.taker(f"held-{number}") for number in range(job["locks"])]
    began = now()
    for taker in takers:
        taker.acquire()
    taken = now()
    before = connection.requests() or 0
    time.sleep(job["watch"])
    figures = {
        "requests_per_s": ((connection.requests() or 0) - before) / job["watch"],
        "threads": float(threading.active_count()),
        "threads_added": float(threading.active_count() - threads),
        "rss_mb": resident() / 1e6,
        "rss_bytes_per_lock": (resident() - memory) / job["locks"],
        "taken_per_s": job["locks"] / (taken - began),
    }
    for taker in [*takers, first]:
        taker.release()
    say("done", figures=figures)


def resident() -> int:
    """How many bytes of memory this process has; 0 where the system does not say."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


ACTS: dict[str, Callable[[Connection, Job], None]] = {"turns": take_turns, "alternate": alternate, "hold": hold}


def main() -> None:
    """Do the job, and close the connection whatever happens."""
    text = sys.stdin.readline()
    if not text:
        return
    job = json.loads(text)
    connection = from_data(job["subject"]).connect()
    try:
        ACTS[job["act"]](connection, job)
    finally:
        connection.close()


if __name__ == "__main__":
    main()
