"""A lock server whose store was put back to an earlier copy, with clients that stayed."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.locks.grant_check import GrantCheck
from tests.faults.children import PATIENCE, eventually
from tests.faults.looks import looked_at
from tests.servers.lock_server import LockServer


class Copies:
    """A server, and a copy of its store's files."""

    def __init__(self, server: LockServer, folder: Path) -> None:
        self.server, self._folder = server, folder

    def take(self) -> None:
        self.server.stop()
        self._copy(self.server.folder, self._folder)
        self.server.start()

    def put_back(self) -> None:
        self.server.kill()
        for path in self.server.folder.glob("locks.db*"):
            path.unlink()
        self._copy(self._folder, self.server.folder)
        self.server.start()

    def _copy(self, source: Path, target: Path) -> None:
        for path in source.glob("locks.db*"):
            shutil.copy(path, target / path.name)


@pytest.fixture
def copies(server: LockServer, tmp_path: Path) -> Copies:
    return Copies(server, tmp_path)


def test_a_holder_hears_that_the_server_came_back_without_its_grant(copies: Copies) -> None:
    url = copies.server.url
    with holdfast.connect(url, ttl=300.0) as locks, holdfast.connect(url, ttl=60.0) as others:
        earlier = locks.lock("earlier").acquire()
        copies.take()
        later = locks.lock("later").acquire(wait=30.0)
        copies.put_back()

        eventually(later.lost.is_set, "the loss was not reported")
        with pytest.raises(holdfast.LockLost, match="older state"):
            later.check()
        # What is in the copy is lost too: the session is as old as the rest.
        eventually(earlier.lost.is_set, "the session goes on")
        with others.lock("later", wait=30.0) as grant:
            assert grant.token > later.token


def test_a_renewal_of_a_grant_that_the_store_lost_says_so(copies: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    async def compares_nothing(_: GrantCheck) -> None:
        """The keeper has not come to it yet."""

    monkeypatch.setattr(GrantCheck, "run", compares_nothing)
    url = copies.server.url
    with holdfast.connect(url, ttl=300.0) as locks, holdfast.connect(url, ttl=60.0) as others:
        earlier = locks.lock("earlier").acquire()
        copies.take()
        earlier.renew()
        later = locks.lock("later").acquire(wait=30.0)
        copies.put_back()

        with others.lock("later", wait=30.0), pytest.raises(holdfast.LockLost, match="older state"):
            later.renew()


def test_a_holder_keeps_a_grant_over_a_restart(copies: Copies) -> None:
    with holdfast.connect(copies.server.url, ttl=300.0) as locks:
        grant = locks.lock("k").acquire()
        asked = looked_at(locks)
        copies.take()

        eventually(lambda: "k" in asked, "the grant was not looked at")
        grant.release()


@pytest.mark.parametrize("came_since", [0, 1, 3], ids=["fewer", "as many", "more"])
def test_a_watch_hears_that_the_server_came_back_without_its_events(copies: Copies, came_since: int) -> None:
    url = copies.server.url
    with (
        ThreadPoolExecutor(1) as threads,
        holdfast.connect(url, ttl=60.0) as watcher,
        holdfast.connect(url, ttl=60.0) as others,
    ):
        with watcher.watch("job") as events:
            take_turns(others, 1)
            assert [next(events).type for _ in range(2)] == ["granted", "released"]
            copies.take()
            take_turns(others, 1)
            assert [next(events).type for _ in range(2)] == ["granted", "released"]
            copies.put_back()
            with holdfast.connect(url, ttl=60.0) as later:
                take_turns(later, came_since)

            with pytest.raises(holdfast.HoldfastError, match="lost data"):
                threads.submit(next, events).result(PATIENCE)


def test_a_watch_goes_on_over_a_restart(copies: Copies) -> None:
    url = copies.server.url
    with holdfast.connect(url, ttl=60.0) as watcher, holdfast.connect(url, ttl=60.0) as others:
        with watcher.watch("job") as events:
            for _ in range(2):
                take_turns(others, 1)
                assert [next(events).type for _ in range(2)] == ["granted", "released"]
                copies.take()


def take_turns(locks: holdfast.Client, times: int) -> None:
    for _ in range(times):
        locks.lock("job").acquire(wait=30.0).release()


def test_a_lock_that_was_given_back_since_does_not_stay_held(copies: Copies) -> None:
    url = copies.server.url
    with holdfast.connect(url, ttl=300.0) as locks, holdfast.connect(url, ttl=60.0) as others:
        given_back = [locks.lock("k").acquire(), locks.semaphore("s", limit=1).acquire(), locks.lock("t").acquire()]
        kept = locks.lock("kept").acquire()
        copies.take()
        for grant in given_back:
            grant.release()
        copies.put_back()

        for lock in (others.lock("k"), others.semaphore("s", limit=1), others.lock("t")):
            lock.acquire(wait=30.0).release()
        kept.release()


def test_a_grant_whose_loss_no_heartbeat_explained_at_first_is_looked_at_again(
    copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    with holdfast.connect(copies.server.url, ttl=20.0) as locks:
        locks.lock("earlier").acquire(wait=30.0).release()
        copies.take()
        grant = locks.lock("later").acquire(wait=30.0)
        asked = looked_at(locks)
        failed: list[str] = []
        core = locks._core
        assert core.keeper is not None
        renew = core.keeper.verbs.renew

        async def fails_once(session: str, until: float) -> Any:
            if "later" in asked and not failed:
                failed.append(session)
                raise holdfast.EngineUnavailable(str(core), "it did not answer", "unknown")
            return await renew(session, until)

        monkeypatch.setattr(core.keeper.verbs, "renew", fails_once)
        copies.put_back()

        eventually(grant.lost.is_set, "the loss was not reported")
        assert failed


@pytest.mark.parametrize("later", [["y"], ["y", "tick"], ["y", "tick", "more"]], ids=["shorter", "as long", "longer"])
@pytest.mark.parametrize("from_", [0, 4], ids=["of all", "of later events"])
@pytest.mark.parametrize("trimmed", [0, 1])
def test_whoever_follows_a_log_hears_that_events_before_the_last_are_others(
    copies: Copies, later: list[str], from_: int, trimmed: int
) -> None:
    url = copies.server.url
    with (
        ThreadPoolExecutor(1) as threads,
        holdfast.connect(url, ttl=60.0) as follower,
        holdfast.connect(url, ttl=60.0) as others,
    ):
        others.log("orders").append(["first"])
        copies.take()
        others.log("orders").append(["x", "tick"])
        with follower.log("orders").follow(from_) as events:
            if from_:
                more = threads.submit(next, events)
                waits_for = follower._core.wakeups._expected
                eventually(lambda: any(signal is not None for signal in list(waits_for.values())), "it does not wait")
            else:
                assert [next(events) for _ in range(3)] == [(0, "first"), (1, "x"), (2, "tick")]
            copies.put_back()
            others.log("orders").append(later)
            others.log("orders").trim(trimmed)
            if not from_:
                more = threads.submit(next, events)

            with pytest.raises(holdfast.HoldfastError, match="lost data"):
                more.result(PATIENCE)
