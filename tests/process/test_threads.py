"""One client under many threads, and under very many locks."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.core import deadline
from holdfast.engines.memory import MemoryPort
from holdfast.engines.sqlite.engine import SqlitePort
from holdfast.engines.table_verbs import TableVerbs
from tests.faults.children import eventually

THREADS = 32


@pytest.fixture(params=["sqlite", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return (
        f"sqlite:///{tmp_path}/locks.db" if request.param == "sqlite" else f"memory://{tmp_path.name.replace('_', '-')}"
    )


def in_threads(work: Any) -> None:
    """Run the same in all threads at once; whatever one of them raises is raised here."""
    errors: list[BaseException] = []
    begin = threading.Barrier(THREADS)

    def run(number: int) -> None:
        try:
            begin.wait()
            work(number)
        except BaseException as error:  # noqa: BLE001 - raised again below, in the thread of the test
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_thirty_two_threads_of_one_client_exclude_each_other(url: str) -> None:
    inside: Counter[str] = Counter()
    count: Counter[str] = Counter()
    with holdfast.connect(url) as locks:

        def work(number: int) -> None:
            for turn in range(8):
                name = f"n{(number + turn) % 3}"
                with locks.lock(name):
                    inside[name] += 1
                    assert inside[name] == 1
                    seen = count[name]
                    time.sleep(0)  # give another thread its chance
                    count[name] = seen + 1
                    inside[name] -= 1

        in_threads(work)
        assert count.total() == THREADS * 8
        assert locks.list() == []
        assert sum(thread.name == "holdfast-keeper" for thread in threading.enumerate()) == 1


def test_without_the_lock_the_same_threads_go_wrong() -> None:
    count = 0

    def work(number: int) -> None:
        nonlocal count
        seen = count
        time.sleep(0.001)
        count = seen + 1

    in_threads(work)
    assert count < THREADS


def test_a_grant_may_be_released_by_another_thread(url: str) -> None:
    with holdfast.connect(url) as locks:
        grant = locks.lock("k").acquire()
        thread = threading.Thread(target=grant.release)
        thread.start()
        thread.join()
        assert not grant.valid
        assert locks.inspect("k").holders == ()


def test_ten_thousand_locks_cost_one_heartbeat_and_one_thread(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    renewed = asked = 0
    port = SqlitePort if url.startswith("sqlite") else MemoryPort
    real_renew, real_call = TableVerbs.renew, port.call

    async def renew(self: TableVerbs, *args: Any) -> Any:
        nonlocal renewed
        renewed += 1
        return await real_renew(self, *args)

    def call(self: Any, *args: Any) -> Any:
        nonlocal asked
        asked += 1
        return real_call(self, *args)

    ttl = 3.0
    before = threading.active_count()
    with holdfast.connect(url, ttl=ttl) as locks:
        grants = [locks.lock(f"n{number}").acquire(wait=0.0) for number in range(10_000)]
        monkeypatch.setattr(TableVerbs, "renew", renew)
        monkeypatch.setattr(port, "call", call)
        # A heartbeat that overtook an acquire finds a difference, and what the engine has is listed once.
        eventually(lambda: renewed >= 2, "a heartbeat", 10 * ttl)

        renewed = asked = 0
        began = time.monotonic()
        eventually(lambda: time.monotonic() - began > 1.2 * ttl, "time stands still")
        beats = (time.monotonic() - began) / deadline.beat_interval(ttl)

        assert 1 <= renewed <= beats + 1
        assert asked == renewed
        assert threading.active_count() == before + 1
        assert all(grant.valid for grant in grants)
