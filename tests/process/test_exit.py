"""The end of a process, a grant or an event loop that nobody tidied up after."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import aio
from holdfast.engines.sqlite.engine import SqlitePort
from tests.faults.child import tell
from tests.faults.children import Child, eventually

LONG_TTL = 600.0


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/locks.db"


def end_without_closing(url: str, how: str) -> None:
    """Hold a lock, and end."""
    if how == "asyncio":
        asyncio.run(hold_in_a_loop(url))
        return
    locks = holdfast.connect(url, ttl=LONG_TTL)
    grant = locks.lock("k").acquire()
    tell({"token": grant.token})
    input()
    if how == "exit":
        sys.exit(3)
    if how == "error":
        raise ZeroDivisionError
    if how == "at once":
        os._exit(4)


async def hold_in_a_loop(url: str) -> None:
    locks = await aio.connect(url, ttl=LONG_TTL)
    grant = await locks.lock("k").acquire()
    tell({"token": grant.token})
    input()


@pytest.mark.parametrize(("how", "code"), [("return", 0), ("exit", 3), ("error", 1), ("asyncio", 0)])
def test_a_process_that_ends_without_closing_releases_at_once(url: str, how: str, code: int) -> None:
    with Child("tests.process.test_exit:end_without_closing", url, how) as child, holdfast.connect(url) as locks:
        token = child.hear()["token"]
        child.ask()
        assert child.ended() == code, child.complaints
        with locks.lock("k", wait=0.0) as grant:
            assert grant.token > token


def test_a_process_that_ends_at_once_holds_until_its_ttl(url: str) -> None:
    with Child("tests.process.test_exit:end_without_closing", url, "at once") as child, holdfast.connect(url) as locks:
        child.hear()
        child.ask()
        assert child.ended() == 4
        assert locks.lock("k").try_acquire() is None


def test_a_forgotten_grant_warns_and_sends_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    real_call = SqlitePort.call

    def call(self: SqlitePort, request: Any, until: float) -> Any:
        asked.append(request)
        return real_call(self, request, until)

    with holdfast.connect(url, ttl=LONG_TTL) as locks:
        grant = locks.lock("k").acquire()
        monkeypatch.setattr(SqlitePort, "call", call)
        with pytest.warns(ResourceWarning, match="'k'.*neither released nor lost"):
            del grant  # nothing else refers to it
        assert asked == []
        assert len(locks.inspect("k").holders) == 1
        assert len(asked) == 1


def test_a_grant_that_was_released_does_not_warn(url: str, recwarn: pytest.WarningsRecorder) -> None:
    with holdfast.connect(url) as locks:
        grant = locks.lock("k").acquire()
        grant.release()
        del grant
        gc.collect()
    assert list(recwarn) == []


# A loop that does not turn


async def test_heartbeats_go_on_while_a_loop_is_busy_for_less_than_max_stall(url: str) -> None:
    async with aio.connect(url, ttl=1.0) as locks:
        async with locks.lock("k") as grant:
            began = time.monotonic()
            eventually(lambda: time.monotonic() - began > 2.0, "time stands still")  # the loop stands still
            assert grant.valid
            assert not grant.in_danger


async def test_a_loop_that_has_stopped_turning_is_renewed_no_more(url: str) -> None:
    async with aio.connect(url, ttl=0.8, max_stall=0.3) as locks:
        grant = await locks.lock("k").acquire()
        eventually(lambda: not grant.valid, "it was renewed for ever", within=10.0)  # the loop stands still
        with holdfast.connect(url) as rival, rival.lock("k", wait=5.0) as taken:
            assert taken.token > grant.token
        async with asyncio.timeout(5.0):
            await grant.lost.wait()
        with pytest.raises(holdfast.LockLost):
            await grant.release()


async def test_the_body_of_a_stalled_loop_is_cancelled_when_it_turns_again(url: str) -> None:
    async with aio.connect(url, ttl=0.8, max_stall=0.3) as locks:

        async def stall() -> None:
            async with locks.lock("k") as grant:
                eventually(lambda: not grant.valid, "it was renewed for ever", within=10.0)
                await asyncio.sleep(30.0)

        with pytest.raises(holdfast.LockLost):
            await stall()


DAEMONS = """
import sys, threading, time, holdfast
locks = holdfast.connect(sys.argv[1])
def hold():
    with locks.lock("held"):
        time.sleep(100)
def wait():
    locks.lock("held").acquire()
def churn(number):
    while True:
        with locks.lock(f"churned-{number % 3}"):
            pass
def watch():
    for event in locks.watch():
        pass
for work, *arguments in [(hold,), (wait,), (watch,), *((churn, number) for number in range(6))]:
    threading.Thread(target=work, args=arguments, daemon=True).start()
while not locks.inspect("held").waiters:
    time.sleep(0.01)
"""


def test_daemon_threads_that_use_a_client_end_with_the_process_and_without_a_word(url: str) -> None:
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", DAEMONS, url], capture_output=True, text=True, timeout=60)

        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    with holdfast.connect(url) as locks:
        assert locks.list() == []
