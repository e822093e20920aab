"""What a fence costs: fenced writes against bare ones, interleaved in one run, as ratios.

    python -m bench.fence [--json] [--rounds N]

PostgreSQL: an UPDATE in a transaction, with and without the check before it, once as durable as it
comes and once with synchronous_commit off, where no disk hides the difference. Redis: SET.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import psycopg
import redis

from holdfast.fence import RedisFence, SqlFence
from holdfast.verify.servers.postgres import PostgresServer
from holdfast.verify.servers.redis import RedisServer

TOKEN = 1_794_735_082_061_923
"""As long as real tokens are."""
CALLS = 50
LIMITS = {"postgresql": 1.5, "redis": 1.3}


@dataclass(frozen=True)
class Result:
    """The median time of a bare write and of a fenced one, in µs."""

    what: str
    bare: float
    fenced: float
    limit: float | None

    @property
    def ratio(self) -> float:
        """How many times longer the fenced one takes."""
        return self.fenced / self.bare


def measure(
    what: str, bare: Callable[[], object], fenced: Callable[[], object], rounds: int, limit: float | None
) -> Result:
    """Take turns, so that whatever else the machine does hits both."""
    times: dict[Callable[[], object], list[float]] = {bare: [], fenced: []}
    for write in (bare, fenced) * 2:
        write()
    for _ in range(rounds):
        for write, taken in times.items():
            began = time.perf_counter()
            for _ in range(CALLS):
                write()
            taken.append((time.perf_counter() - began) / CALLS * 1e6)
    return Result(what, statistics.median(times[bare]), statistics.median(times[fenced]), limit)


def measure_postgresql(url: str, rounds: int) -> Iterator[Result]:
    """UPDATE of one row in a transaction."""
    fence = SqlFence()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS fence_bench")
        connection.execute("CREATE TABLE fence_bench (id int PRIMARY KEY, value int) WITH (fillfactor = 50)")
        connection.execute("INSERT INTO fence_bench VALUES (1, 0)")
        fence.create(connection)

        def bare() -> None:
            with connection.transaction():
                connection.execute("UPDATE fence_bench SET value = value + 1 WHERE id = 1")

        def fenced() -> None:
            with connection.transaction():
                fence.check(connection, TOKEN, resource="fence_bench")
                connection.execute("UPDATE fence_bench SET value = value + 1 WHERE id = 1")

        yield measure("PostgreSQL UPDATE", bare, fenced, rounds, LIMITS["postgresql"])
        connection.execute("SET synchronous_commit = off")
        yield measure("PostgreSQL UPDATE, synchronous_commit off", bare, fenced, rounds, None)


def measure_redis(url: str, rounds: int) -> Iterator[Result]:
    """SET of one key."""
    with redis.Redis.from_url(url) as client:
        fence = RedisFence(client)
        yield measure(
            "Redis SET",
            lambda: client.set("fence-bench", "value"),
            lambda: fence.set("fence-bench", "value", TOKEN, resource="fence-bench"),
            rounds * 5,
            LIMITS["redis"],
        )


@contextmanager
def servers() -> Iterator[tuple[str, str]]:
    """A PostgreSQL and a Redis of our own; their URLs."""
    with PostgresServer() as postgres, RedisServer() as own_redis:
        yield postgres.url, own_redis.url


def main() -> int:
    """Measure, tell, and give 1 if a fence costs more than it may."""
    parser = argparse.ArgumentParser(description="What a fence costs.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--rounds", type=int, default=40, help="how often they take turns")
    chosen = parser.parse_args()
    with servers() as (postgres_url, redis_url):
        results = [*measure_postgresql(postgres_url, chosen.rounds), *measure_redis(redis_url, chosen.rounds)]
    if chosen.json:
        print(json.dumps([asdict(result) | {"ratio": round(result.ratio, 3)} for result in results]))
    else:
        print(f"{'':44}{'bare':>10}{'fenced':>10}{'ratio':>8}{'limit':>8}")
        for result in results:
            limit = "" if result.limit is None else f"{result.limit:.1f}"
            print(f"{result.what:44}{result.bare:7.0f} µs{result.fenced:7.0f} µs{result.ratio:8.2f}{limit:>8}")
    return int(any(result.limit is not None and result.ratio > result.limit for result in results))


if __name__ == "__main__":
    sys.exit(main())
