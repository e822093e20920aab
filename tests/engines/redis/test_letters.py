"""Events that are not fetched in time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis as redis_py

from holdfast.core.table.commands import Letters
from holdfast.core.table.rows import Session
from holdfast.core.table.step import MOST_LETTERS
from holdfast.core.urls import parse
from holdfast.engines.redis.engine import RedisEngine
from holdfast.engines.redis.verbs import RedisVerbs
from holdfast.engines.resp.wire import compose
from holdfast.runtime import clock
from holdfast.runtime.blocking import run

LATER = 60.0


class Watched:
    """A cell that is written many times, and a watch of it."""

    def __init__(self, verbs: RedisVerbs, redis: redis_py.Redis) -> None:
        self._verbs, self._redis = verbs, redis
        self._write = redis.register_script(compose("cell_set"))
        run(verbs.open_session(Session("s", LATER, 0.0, "app", "host", 1), clock.now() + LATER))
        run(verbs.cell_watch("s", "w", "test.cell", "c", clock.now() + LATER))

    def write(self, times: int) -> None:
        with self._redis.pipeline(transaction=False) as pipeline:
            for value in range(times):
                self._write(["holdfast:1:{test}:"], ["cell:c", 1, value, "", 0], client=pipeline)
            pipeline.execute()

    def fetch(self, after: int) -> Letters:
        found = run(self._verbs.fetch("s", "w", after, clock.now() + LATER))
        assert isinstance(found, Letters)
        return found


@pytest.fixture
def watched(url: str, redis: redis_py.Redis) -> Iterator[Watched]:
    engine = RedisEngine(parse(url), "test")
    yield Watched(engine.blocking(), redis)
    engine.close()


def test_a_watch_that_has_read_something_is_told_that_it_has_missed_something(watched: Watched) -> None:
    """What was fetched last still takes up room: there is less than usual for what is not."""
    watched.write(10)
    read = watched.fetch(0)
    watched.write(MOST_LETTERS + 1)

    assert watched.fetch(read.last).overflowed
    # Its answer may have been lost.
    assert watched.fetch(read.last).overflowed


def test_a_watch_that_has_missed_something_is_told_once_and_hears_what_comes_next(watched: Watched) -> None:
    watched.write(10)
    read = watched.fetch(0)
    watched.write(MOST_LETTERS + 1)
    missed = watched.fetch(read.last)
    watched.fetch(missed.last)
    watched.write(2)
    following = watched.fetch(missed.last)

    assert (len(following.events), following.overflowed) == (2, False)
