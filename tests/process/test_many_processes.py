"""Many processes on one machine, on the embedded engine."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

import holdfast
from tests.faults.children import Child, eventually, switches
from tests.faults.puppet import Puppet


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/locks.db"


def count_in_eight_processes(url: str, counter: Path, times: int, locked: bool) -> int:
    counter.write_text("0")
    with ExitStack() as stack:
        children = [
            stack.enter_context(Child("tests.process.programs:count_up", url, str(counter), times, locked))
            for _ in range(8)
        ]
        for child in children:
            child.expect("ready")
        for child in children:
            child.ask()
        for child in children:
            child.expect("done", within=60.0)
            assert child.ended() == 0, child.complaints
    return int(counter.read_text())


def test_eight_processes_count_exactly_under_the_lock(url: str, tmp_path: Path) -> None:
    assert count_in_eight_processes(url, tmp_path / "counter", 200, locked=True) == 1600


def test_without_the_lock_the_same_count_goes_wrong(url: str, tmp_path: Path) -> None:
    assert count_in_eight_processes(url, tmp_path / "counter", 200, locked=False) < 1600


def test_processes_are_served_in_the_order_of_their_arrival(url: str) -> None:
    with holdfast.connect(url) as locks, ExitStack() as stack:
        held = locks.lock("k").acquire()
        puppets = [stack.enter_context(Puppet(url)) for _ in range(5)]
        for number, puppet in enumerate(puppets, 1):
            puppet.begin("acquire", "k", None)
            eventually(lambda n=number: len(locks.inspect("k").waiters) == n, "it did not get in line")  # type: ignore[misc]

        held.release()

        tokens = []
        for puppet in puppets:
            tokens.append(puppet.answer()["token"])
            assert all(other.tells_nothing() for other in puppets), "somebody was served together with another"
            puppet.do("release", "k")
        assert [held.token, *tokens] == sorted({held.token, *tokens})


def test_a_release_wakes_the_next_process_long_before_it_would_look_by_itself(url: str) -> None:
    with holdfast.connect(url) as locks, Puppet(url) as rival:
        slowest = 0.0
        for _ in range(10):
            held = locks.lock("k").acquire()
            rival.begin("acquire", "k", None)
            eventually(lambda: locks.inspect("k").waiters, "it did not get in line")
            began = time.monotonic()
            held.release()
            rival.answer()
            slowest = max(slowest, time.monotonic() - began)
            rival.do("release", "k")
        # Waiters look by themselves after two seconds or more.
        assert slowest < 1.0


def test_an_idle_waiter_wakes_up_less_than_twice_a_second(url: str) -> None:
    with holdfast.connect(url) as locks:
        held = locks.lock("k").acquire()
        with Child("tests.process.programs:wait_for_ever", url, 10.0, "k") as waiter:
            waiter.expect("ready")
            eventually(lambda: locks.inspect("k").waiters, "it did not get in line")
            before, began = switches(waiter.pid), time.monotonic()
            # Long enough for several heartbeats, sweeps and looks of its own.
            eventually(lambda: time.monotonic() - began > 8.0, "time stands still")
            rate = (switches(waiter.pid) - before) / (time.monotonic() - began)
            assert rate < 2.0
            assert len(locks.inspect("k").waiters) == 1
            held.release()
            waiter.expect("granted")
