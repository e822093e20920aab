"""A process that forks while it holds locks. Everything here runs in a child, which forks in turn."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import holdfast
from tests.faults.child import tell
from tests.faults.children import Child, eventually
from tests.faults.puppet import Puppet

TTL = 1.0


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/locks.db"


def use_in_fork(locks: holdfast.Client, grant: holdfast.Grant) -> None:
    """What a child may and may not do with what its parent had."""
    told: dict[str, object] = {"valid": grant.valid, "lost": grant.lost.is_set()}
    try:
        grant.release()
    except holdfast.LockLost:
        told["release"] = "LockLost"
    told["parent holds"] = locks.lock("k").try_acquire() is None
    with locks.lock("mine", wait=5.0) as mine:
        told["session"] = mine.owner.partition("/")[0] != grant.owner.partition("/")[0]
    locks.close()
    tell(told)


def hold_and_fork(url: str, way: str) -> None:
    """Fork in the middle of a hold, then see whether the hold goes on."""
    with holdfast.connect(url, ttl=TTL) as locks:
        grant = locks.lock("k").acquire()
        if way == "os.fork":
            if not (child := os.fork()):
                use_in_fork(locks, grant)
                return
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        else:
            process = multiprocessing.get_context("fork").Process(target=use_in_fork, args=(locks, grant))
            process.start()
            process.join()
            code = process.exitcode or 0
        began = time.monotonic()
        eventually(lambda: time.monotonic() - began > 1.5 * TTL, "time stands still")
        tell({"child ended with": code, "valid": grant.valid})
        grant.release()
    tell("released")


@pytest.mark.parametrize("way", ["os.fork", "multiprocessing"])
def test_a_hold_goes_on_in_the_parent_and_is_none_in_the_child(url: str, way: str) -> None:
    with Child("tests.process.test_fork:hold_and_fork", url, way) as parent:
        parent.expect({"valid": False, "lost": True, "release": "LockLost", "parent holds": True, "session": True})
        parent.expect({"child ended with": 0, "valid": True})
        parent.expect("released")
        assert parent.ended() == 0, parent.complaints
        assert parent.complaints == ""


def leave_to_the_fork(url: str) -> None:
    """Fork, close in the parent, and let the child hold a lock of its own."""
    locks = holdfast.connect(url)
    with locks.lock("before"):
        pass
    closed, hear_closed = os.pipe()[::-1]
    if os.fork():
        locks.close()
        os.write(closed, b"!")
        os.wait()
        return
    with locks.lock("k") as grant:
        os.read(hear_closed, 1)
        tell({"token": grant.token})
        input()
        tell({"valid": grant.valid})
    tell("released")


def test_what_the_fork_holds_is_held_after_the_parent_has_closed_the_file(url: str) -> None:
    with Child("tests.process.test_fork:leave_to_the_fork", url) as parent, Puppet(url) as rival:
        token = parent.hear()["token"]
        assert "refused" in rival.do("try_acquire", "k")
        parent.ask()
        parent.expect({"valid": True})
        parent.expect("released")
        assert rival.takes("k", wait=5.0) > token


def join_and_fork(url: str, under_way: bool) -> None:
    """Fork as a member of a group, or while another thread is in the middle of its join; let the child join too."""
    entered, go = threading.Event(), threading.Event()
    with holdfast.connect(url) as locks:
        member = locks.partition("workers", "a")
        if under_way:
            verbs: Any = locks._core.verbs
            enter = verbs.enter

            async def slow(*args: Any) -> Any:
                entered.set()
                go.wait()
                return await enter(*args)

            verbs.enter = slow
            joining = threading.Thread(target=member.join)
            joining.start()
            entered.wait()
        else:
            member.join()
        if not (child := os.fork()):
            signal.alarm(10)  # whoever waits for a thread that is not here would wait for ever
            told: dict[str, object] = {"before": member.owns("k")}
            member.join()
            told["places"] = len(member.epoch.members) if member.epoch is not None else 0
            told["claims"] = len(locks.inspect("workers", kind="partition").holders)
            member.leave()
            locks.close()
            tell(told)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        go.set()
        if under_way:
            joining.join()
        eventually(lambda: member.owns("k"), "the parent is no member")
        tell({"child ended with": code, "claims": len(locks.inspect("workers", kind="partition").holders)})


@pytest.mark.parametrize(("under_way", "claims"), [(False, 2), (True, 1)], ids=["joined", "joining"])
def test_a_fork_joins_a_group_by_itself(url: str, under_way: bool, claims: int) -> None:
    with Child("tests.process.test_fork:join_and_fork", url, under_way) as parent:
        parent.expect({"before": False, "places": 1, "claims": claims})
        parent.expect({"child ended with": 0, "claims": 1})
        assert parent.ended() == 0, parent.complaints
        assert parent.complaints == ""


def fork_among_threads(url: str, forks: int) -> None:
    """Fork again and again while other threads are in the middle of their steps."""
    ended = threading.Event()
    with holdfast.connect(url) as locks:

        def work(name: str) -> None:
            while not ended.is_set():
                with locks.lock(name):
                    os.sched_yield()

        threads = [threading.Thread(target=work, args=(f"of-{number}",)) for number in range(3)]
        for thread in threads:
            thread.start()
        codes = []
        for _ in range(forks):
            child = os.fork()
            if not child:
                with locks.lock("of-forks", wait=10.0):
                    os.sched_yield()
                os._exit(0)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        ended.set()
        for thread in threads:
            thread.join()
    tell({"codes": sorted(set(codes))})


def test_a_fork_works_whatever_the_other_threads_were_doing(url: str) -> None:
    with Child("tests.process.test_fork:fork_among_threads", url, 20) as parent:
        parent.expect({"codes": [0]}, within=60.0)
        assert parent.ended() == 0, parent.complaints


def fork_in_a_request(url: str) -> None:
    """Fork while the keeper is in the middle of a request that does not end."""
    sent, go = threading.Event(), threading.Event()
    with holdfast.connect(url) as locks:
        grant = locks.lock("k").acquire()
        keeper = locks._core.keeper
        assert keeper is not None
        verbs: Any = keeper.verbs
        renew = verbs.renew

        async def slow(*args: Any) -> Any:
            sent.set()
            go.wait()
            return await renew(*args)

        verbs.renew = slow
        keeper.beat_soon()
        sent.wait()
        if not (child := os.fork()):
            tell({"valid": grant.valid, "parent holds": locks.lock("k").try_acquire() is None})
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        tell({"child ended with": code, "same thread": keeper.thread is not None and keeper.thread.is_alive()})
        verbs.renew = renew
        until = grant.remaining
        go.set()
        eventually(lambda: grant.remaining > until, "the keeper sends no heartbeat")
        grant.release()
    tell("released")


def test_a_fork_does_not_wait_for_a_request_of_the_keeper(url: str) -> None:
    with Child("tests.process.test_fork:fork_in_a_request", url) as parent:
        parent.expect({"valid": False, "parent holds": True})
        parent.expect({"child ended with": 0, "same thread": True})
        parent.expect("released")
        assert parent.ended() == 0, parent.complaints


def fork_without_room(url: str) -> None:
    """Fork, and find that no thread can be started afterwards."""
    with holdfast.connect(url) as locks:
        grant = locks.lock("k").acquire()
        core: Any = locks._core
        spawn = core._spawn

        def no_room(work: Any) -> None:
            work.close()
            raise RuntimeError("can't start new thread")

        core._spawn = no_room
        if not (child := os.fork()):
            os._exit(0)
        os.waitpid(child, 0)
        with pytest.raises(holdfast.LockLost, match="can't start new thread"):
            grant.check()
        tell({"valid": grant.valid, "lost": grant.lost.is_set()})
        core._spawn = spawn
        with locks.lock("other"):
            tell("goes on")


def test_a_keeper_that_cannot_go_on_after_a_fork_loses_its_grants_at_once(url: str) -> None:
    with Child("tests.process.test_fork:fork_without_room", url) as parent:
        parent.expect({"valid": False, "lost": True})
        parent.expect("goes on")
        assert parent.ended() == 0, parent.complaints
