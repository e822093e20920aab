"""What happens to a whole process: Ctrl-C in a wait, a fork in the middle of a hold, a loop that stands still."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from threading import Thread

import pytest

import holdfast
from holdfast import aio
from tests.conformance.engines import Subject
from tests.conformance.stage import Breaker, eventually, in_line

pytestmark = pytest.mark.any_connection
across_processes = pytest.mark.needs_of_subject("across_processes")

# The thread that tells of the place is kept: Python drops a Ctrl-C that comes while it forgets one.
WAITER = """
import sys, threading, holdfast
with holdfast.connect(sys.argv[1], app="waiter") as locks:
    waits = []
    def queued(place):
        if not waits:
            waits.append(threading.current_thread())
            print("queued", flush=True)
    try:
        locks.lock("k", on_wait=queued).acquire()
    except KeyboardInterrupt:
        print("interrupted", len(locks.inspect("k").waiters), flush=True)
        sys.stdin.readline()
"""

READS_IN_A_THREAD = ("etcd", "zookeeper")
"""Engines whose drivers read their connection in a thread, which is there at a fork. The keeper's is not."""

THREAD_AFTER_FORK = """
import os, threading
wait = threading.Event().wait
os.register_at_fork(after_in_parent=lambda: threading.Thread(target=wait, daemon=True).start())
if not (child := os.fork()):
    os._exit(0)
os.waitpid(child, 0)
"""
"""A process with one thread that forks, and begins a second one afterwards."""

FORKING = """
import os, sys, time
threads = []
# What is registered first is called last: after Holdfast has done what it does before a fork.
os.register_at_fork(before=lambda: threads.append(len(os.listdir("/proc/self/task"))))
import holdfast
locks = holdfast.connect(sys.argv[1])
held = locks.lock("k").acquire()
# Redlock connects to the rest of its nodes in threads, which end by themselves.
until = time.monotonic() + 10.0
while len(os.listdir("/proc/self/task")) > int(sys.argv[2]) and time.monotonic() < until:
    time.sleep(0.01)
child = os.fork()
if child == 0:
    def outcome():
        yield not held.valid
        yield locks.lock("k").try_acquire() is None
        own = locks.lock("child").acquire(wait=5.0)
        yield own.valid
        own.release()
        try:
            held.release()
        except holdfast.HoldfastError:
            yield True
    answers = list(outcome())
    locks.close()
    os._exit(0 if answers == [True] * 4 else 1)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, "the child spoke for its parent"
print("threads at the fork:", *threads)
held.renew()
assert locks.inspect("k").holders[0].token == held.token
held.release()
locks.close()
"""


@pytest.fixture
def operator(url: str) -> Iterator[holdfast.Client]:
    with holdfast.connect(url, app="operator") as client:
        yield client


@pytest.mark.by_turns
@across_processes
def test_ctrl_c_in_a_blocking_wait_leaves_no_place(url: str, operator: holdfast.Client) -> None:
    held = operator.lock("k").acquire()
    command = [sys.executable, "-m", "tests.faults.code", WAITER, url]
    with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "queued\n"
        process.send_signal(signal.SIGINT)

        assert process.stdout.readline() == "interrupted 0\n"
        assert operator.inspect("k").waiters == ()
        process.communicate("\n")
    assert process.returncode == 0
    held.release()


@pytest.mark.by_turns
@across_processes
def test_a_forked_child_never_speaks_for_its_parent(url: str, subject: Subject) -> None:
    reads = subject.name in READS_IN_A_THREAD
    # The main thread, the keeper's, and the one that reads.
    done = with_all_warnings(FORKING, url, str(2 + reads))

    assert done.returncode == 0, done.stderr
    assert done.stdout == f"threads at the fork: {1 + reads}\n"
    # Python has warned of several threads since 3.12.
    assert ("multi-threaded" in done.stderr) == ((reads and sys.version_info >= (3, 12)) or counts_too_late())
    assert done.stderr == "" or "multi-threaded" in done.stderr


def with_all_warnings(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program of its own that shows every warning."""
    command = [sys.executable, "-W", "always", "-m", "tests.faults.code", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def counts_too_late() -> bool:
    """Whether this Python counts the threads that begin after a fork, as 3.13 does."""
    return "multi-threaded" in with_all_warnings(THREAD_AFTER_FORK).stderr


@pytest.mark.by_turns
async def test_an_aio_loop_that_stands_still_for_too_long_is_not_renewed(url: str, operator: holdfast.Client) -> None:
    async with aio.connect(url, ttl=0.6, max_stall=0.2) as locks:
        held = await locks.lock("k").acquire()
        # This blocks the loop: nobody turns it until the lock has been given to somebody else.
        theirs = operator.lock("k").acquire(wait=20.0)

        assert not held.valid
        assert theirs.token > held.token
        theirs.release()


@pytest.mark.by_turns
async def test_an_aio_loop_that_stands_still_for_a_while_keeps_its_locks(url: str, operator: holdfast.Client) -> None:
    async with aio.connect(url, ttl=1.0) as locks:
        held = await locks.lock("k").acquire()
        with pytest.raises(holdfast.NotAcquired):
            operator.lock("k").acquire(wait=2.0)

        held.check()
        await held.release()


async def test_an_aio_release_that_is_cancelled_is_finished(url: str, operator: holdfast.Client) -> None:
    async with aio.connect(url) as locks:
        for turns in range(4):
            held = await locks.lock("k").acquire()
            releasing = asyncio.create_task(held.release())
            for _ in range(turns):
                await asyncio.sleep(0)
            releasing.cancel()
            outcome = (await asyncio.gather(releasing, return_exceptions=True))[0]
            if turns == 0:
                # It never began: the lock is held as before.
                assert held.valid
                await held.release()
            assert outcome is None or isinstance(outcome, asyncio.CancelledError)
            theirs = await asyncio.to_thread(operator.lock("k").acquire, 10.0)
            assert not held.valid
            theirs.release()


async def test_an_aio_callback_may_be_a_coroutine(subject: Subject, url: str, breaker: Breaker) -> None:
    told = asyncio.Event()

    async def on_lost(grant: aio.Grant) -> None:
        await asyncio.sleep(0)
        told.set()

    async with aio.connect(url, ttl=subject.ttl) as locks:
        held = await locks.lock("k", on_lost=on_lost).acquire()
        await asyncio.to_thread(breaker, "k")
        await asyncio.wait_for(told.wait(), 10.0)
        assert not held.valid


@pytest.mark.by_turns
def test_one_client_serves_32_threads(url: str, operator: holdfast.Client) -> None:
    """An unprotected counter, incremented under the lock and nothing else."""
    count = [0]

    def increment() -> None:
        for _ in range(5):
            with operator.lock("counter"):
                seen = count[0]
                time.sleep(0)
                count[0] = seen + 1

    threads = [Thread(target=increment) for _ in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count == [160]


async def test_the_two_apis_exclude_each_other(url: str, operator: holdfast.Client) -> None:
    async with aio.connect(url) as locks:
        async with locks.lock("k"):
            assert operator.lock("k").try_acquire() is None
        with operator.lock("k"):
            waiting = asyncio.create_task(locks.lock("k").acquire())
            await eventually(lambda: in_line(operator, "k", locks))
        held = await asyncio.wait_for(waiting, 10.0)
        await held.release()
