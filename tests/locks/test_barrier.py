"""What a barrier must not do when more come than it has parties."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.locks import barrier
from holdfast.locks.cell import CellFront
from holdfast.verify.servers.process import wait_until
from holdfast.verify.servers.redis import RedisServer


def test_every_generation_is_passed_by_exactly_its_parties(tmp_path: Path) -> None:
    passed: list[int] = []

    def come_again(client: holdfast.Client) -> None:
        with suppress(holdfast.NotAcquired):  # the last one may be left alone
            for _ in range(12):
                passed.append(client.barrier("b", parties=2).wait(1.5))  # noqa: PERF401

    with holdfast.connect(f"sqlite:///{tmp_path}/locks.db") as locks:
        threads = [threading.Thread(target=come_again, args=(locks,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert len(passed) > 20
    assert set(Counter(passed).values()) == {2}


def test_a_generation_that_was_forgotten_lets_nobody_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(barrier, "KEEP", 0.2)
    with holdfast.connect("memory://forgotten") as locks:
        first = threading.Thread(target=lambda: locks.barrier("b", parties=2).wait(10.0))
        first.start()
        locks.barrier("b", parties=2).wait(10.0)
        first.join()

        with pytest.raises(holdfast.NotAcquired):
            locks.barrier("b", parties=2).wait(1.0)


def arrived(locks: holdfast.Client, parties: int) -> None:
    wait_until(lambda: len(locks.inspect("b", kind="barrier").holders) == parties, 10, f"the arrival of {parties}")


def test_a_party_whose_place_was_taken_from_it_comes_again() -> None:
    with holdfast.connect("memory://taken", ttl=0.5) as locks, ThreadPoolExecutor() as threads:
        waiting = threads.submit(locks.barrier("b", parties=2).wait, 30.0)
        arrived(locks, 1)
        locks.break_lock("b", kind="barrier", force=True)

        assert locks.barrier("b", parties=2).wait(30.0) == waiting.result()


def test_one_who_comes_with_another_number_does_not_send_those_away_who_were_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both look while both are there: the one that came later is wrong."""
    may_look, looked = {2: threading.Event(), 3: threading.Event()}, threading.Event()
    real = barrier.BarrierFront.parties_here

    async def when_told(front: barrier.BarrierFront, *args: Any) -> list[str]:
        assert may_look[front.parties].wait(30)
        try:
            return await real(front, *args)
        finally:
            looked.set()

    monkeypatch.setattr(barrier.BarrierFront, "parties_here", when_told)
    with holdfast.connect("memory://other number", ttl=0.5) as locks, ThreadPoolExecutor(4) as threads:
        first = threads.submit(locks.barrier("b", parties=3).wait, 30.0)
        arrived(locks, 1)
        wrong = threads.submit(locks.barrier("b", parties=2).wait, 30.0)
        arrived(locks, 2)
        may_look[3].set()
        assert looked.wait(30)
        may_look[2].set()

        with pytest.raises(holdfast.InvalidRequest, match="in use with 3 parties"):
            wrong.result()
        others = [threads.submit(locks.barrier("b", parties=3).wait, 30.0) for _ in range(2)]
        assert {first.result(), *(other.result() for other in others)} == {1}


@pytest.mark.parametrize("engine", ["sqlite", "redis"])
def test_a_party_that_was_counted_and_then_paused_past_its_ttl_and_its_wait_passes(tmp_path: Path, engine: str) -> None:
    code = "import sys, holdfast; print(holdfast.connect(sys.argv[1], ttl=2.0).barrier('b', parties=2).wait(3.0))"
    with ExitStack() as stack:
        redis = stack.enter_context(RedisServer()) if engine == "redis" else None
        url = f"sqlite:///{tmp_path}/locks.db" if redis is None else redis.url
        locks = stack.enter_context(holdfast.connect(url))
        paused = stack.enter_context(
            subprocess.Popen([sys.executable, "-c", code, url], stdout=subprocess.PIPE, text=True)
        )
        stack.callback(paused.kill)
        arrived(locks, 1)
        paused.send_signal(signal.SIGSTOP)
        generation = locks.barrier("b", parties=2).wait(10.0)
        wait_until(lambda: not locks.inspect("b", kind="barrier").holders, 10, "the end of the paused session")
        # Past its wait, and past the second after that in which its call has to answer.
        time.sleep(4.5)
        paused.send_signal(signal.SIGCONT)

        assert paused.communicate(timeout=15)[0] == f"{generation}\n"


@pytest.mark.parametrize("later", [0, 3])
def test_a_party_that_was_counted_and_then_paused_past_its_ttl_passes(tmp_path: Path, later: int) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    code = "import sys, holdfast; print(holdfast.connect(sys.argv[1], ttl=0.6).barrier('b', parties=2).wait(20.0))"
    with holdfast.connect(url) as locks, holdfast.connect(url) as another:
        paused = subprocess.Popen([sys.executable, "-c", code, url], stdout=subprocess.PIPE, text=True)
        try:
            arrived(locks, 1)
            paused.send_signal(signal.SIGSTOP)
            generation = locks.barrier("b", parties=2).wait(10.0)
            # Its session is over, and later generations may come before it goes on.
            wait_until(lambda: not locks.inspect("b", kind="barrier").holders, 10, "the end of the paused session")
            for _ in range(later):
                with ThreadPoolExecutor() as threads:
                    other = threads.submit(another.barrier("b", parties=2).wait, 10.0)
                    assert locks.barrier("b", parties=2).wait(10.0) == other.result()
            paused.send_signal(signal.SIGCONT)

            assert paused.communicate(timeout=15)[0] == f"{generation}\n"
        finally:
            paused.kill()
            paused.communicate()


PAUSES_BEFORE_IT_LOOKS = """
import os, signal, sys, holdfast
from holdfast.locks import acquire
keep, pauses = acquire.keep, [True]
def paused(*args):
    if pauses.pop():
        pauses.append(False)
        print("granted", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
    return keep(*args)
acquire.keep = paused
print(holdfast.connect(sys.argv[1], ttl=0.6).barrier("b", parties=2).wait(float(sys.argv[2])))
"""


@pytest.mark.parametrize("wait", [0.1, 20.0])
@pytest.mark.parametrize("engine", ["sqlite", "redis"])
def test_a_party_that_was_counted_before_it_saw_its_own_grant_passes(tmp_path: Path, engine: str, wait: float) -> None:
    """Paused after the engine has answered, and before the client has read it."""
    with ExitStack() as stack:
        redis = stack.enter_context(RedisServer()) if engine == "redis" else None
        url = f"sqlite:///{tmp_path}/locks.db" if redis is None else redis.url
        locks = stack.enter_context(holdfast.connect(url))
        words = [sys.executable, "-c", PAUSES_BEFORE_IT_LOOKS, url, str(wait)]
        paused = stack.enter_context(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
        stack.callback(paused.kill)
        assert paused.stdout is not None
        assert paused.stdout.readline() == "granted\n"
        generation = locks.barrier("b", parties=2).wait(10.0)
        wait_until(lambda: not locks.inspect("b", kind="barrier").holders, 10, "the end of the paused session")
        paused.send_signal(signal.SIGCONT)

        assert paused.communicate(timeout=15)[0] == f"{generation}\n"


def test_a_party_that_is_counted_after_its_last_look_passes() -> None:
    url = "memory://late"
    with holdfast.connect(url) as locks, holdfast.connect(url) as another:
        verbs: Any = locks._core.verbs
        release, generations = verbs.release, list[int]()

        async def counted_first(*args: Any) -> Any:
            with ThreadPoolExecutor() as threads:
                generations.append(threads.submit(another.barrier("b", parties=2).wait, 10.0).result())
            return await release(*args)

        verbs.release = counted_first

        assert [locks.barrier("b", parties=2).wait(0.1)] == generations


def test_a_party_that_was_told_that_too_few_came_is_not_counted_later() -> None:
    """The second comes after the first one's last look, counts it before it leaves, and writes that after it left."""
    url = "memory://told"
    with holdfast.connect(url) as locks, holdfast.connect(url) as another, ThreadPoolExecutor() as threads:
        verbs: Any = locks._core.verbs
        others: Any = another._core.verbs
        release, cell_set = verbs.release, others.cell_set
        writes, may_write, second = threading.Event(), threading.Event(), list[Future[int]]()

        async def counted_first(*args: Any) -> Any:
            second.append(threads.submit(another.barrier("b", parties=2).wait, 1.0))
            assert writes.wait(30), "the second has not counted the first"
            return await release(*args)

        async def when_told(*args: Any) -> Any:
            writes.set()
            assert may_write.wait(30)
            return await cell_set(*args)

        verbs.release, others.cell_set = counted_first, when_told

        with pytest.raises(holdfast.NotAcquired):
            locks.barrier("b", parties=2).wait(0.1)
        may_write.set()

        with pytest.raises(holdfast.NotAcquired):
            second[0].result()


@pytest.mark.parametrize("counts_it", [False, True])
def test_a_party_whose_last_look_meets_a_write_knows_whether_that_counted_it(counts_it: bool) -> None:
    url = "memory://meets"
    with holdfast.connect(url) as locks, holdfast.connect(url) as another:
        verbs: Any = locks._core.verbs
        cell_set, written = verbs.cell_set, list[int]()

        async def after_another(kind: str, name: str, *args: Any) -> Any:
            if not written:
                (claim,) = claims
                through = {claim: 7} if counts_it else {}
                cell = CellFront(another._core, "barrier", name)
                written.append(await cell.set({"last": 7, "through": through}, None))
            return await cell_set(kind, name, *args)

        verbs.cell_set, claims = after_another, list[str]()
        release = verbs.release

        async def remembered(claim: Any, *args: Any) -> Any:
            claims.append(claim.id)
            return await release(claim, *args)

        verbs.release = remembered

        if counts_it:
            assert locks.barrier("b", parties=2).wait(0.1) == 7
        else:
            with pytest.raises(holdfast.NotAcquired):
                locks.barrier("b", parties=2).wait(0.1)
        assert written


def test_the_record_of_a_barrier_is_bounded() -> None:
    through = {f"claim-{number}": number for number in range(5_000)}
    here = ["claim-3", "claim-4999", "new"]

    kept = barrier.remembered(through, here, parties=400)

    assert len(kept) == 800
    assert {"claim-3", "claim-4999", "claim-4998"} < set(kept)
    assert "claim-5" not in kept
