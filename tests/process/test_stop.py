"""Processes that are stopped: a holder past its ttl, and one inside a transaction."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

import holdfast
from tests.faults.child import tell
from tests.faults.children import Child, eventually
from tests.faults.puppet import Puppet


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/locks.db"


def hold_and_compare(url: str, ttl: float) -> None:
    """Look at `valid` all the time, and tell when it has changed and what a release says."""
    locks = holdfast.connect(url, ttl=ttl)
    grant = locks.lock("k").acquire()
    lost = grant.lost
    # Before it is told: the pause may begin as soon as it is.
    looked = time.clock_gettime(time.CLOCK_BOOTTIME)
    tell({"token": grant.token})
    while True:
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        valid = grant.valid
        if now - looked > ttl / 2:
            tell({"valid": valid})  # the first look after the pause
            break
        looked = now
    tell({"lost": lost.wait(5.0)})
    try:
        grant.release()
    except holdfast.LockLost as error:
        tell({"release": "LockLost", "token": error.token})
    input()


def test_a_holder_stopped_past_its_ttl_knows_at_its_first_look(url: str) -> None:
    with Child("tests.process.test_stop:hold_and_compare", url, 1.0) as stopped, Puppet(url) as rival:
        first = stopped.hear()["token"]
        stopped.stop()
        second = rival.takes("k", wait=10.0)
        assert second > first

        stopped.go_on()

        stopped.expect({"valid": False})
        stopped.expect({"lost": True})
        stopped.expect({"release": "LockLost", "token": first})
        assert rival.do("look", "k")["valid"]
        assert rival.do("inspect", "k")["holders"] == 1
        assert rival.do("release", "k")["released"]


def test_a_lost_event_is_set_even_if_release_is_what_finds_the_loss(url: str) -> None:
    with Puppet(url, 0.5) as stopped, Puppet(url) as rival:
        stopped.takes("k")
        stopped.stop()
        rival.takes("k", wait=10.0)
        stopped.begin("release", "k")  # it is read, and done, at once after the pause
        stopped.go_on()
        assert stopped.answer()["error"] == "LockLost"
        assert stopped.do("wait_lost", "k", 5.0)["lost"]
        assert rival.do("look", "k")["valid"]


def test_a_stopped_waiter_is_overtaken_and_starts_again_at_the_end(url: str) -> None:
    with Puppet(url) as holder, Puppet(url, 0.5) as stopped, Puppet(url) as rival:
        first = holder.takes("k")
        stopped.begin("acquire", "k", None)
        eventually(lambda: holder.do("inspect", "k")["waiters"] == 1, "it did not get in line")
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as database:
            # While we have the file it is in no step: one stopped inside would stop the others, as documented.
            database.execute("BEGIN IMMEDIATE")
            stopped.stop()
            database.execute("ROLLBACK")
        eventually(lambda: holder.do("inspect", "k")["waiters"] == 0, "its session did not end")
        rival.begin("acquire", "k", None)
        eventually(lambda: holder.do("inspect", "k")["waiters"] == 1, "the rival did not get in line")
        holder.do("release", "k")
        second = rival.answer()["token"]
        stopped.go_on()
        eventually(lambda: holder.do("inspect", "k")["waiters"] == 1, "it did not come back")
        assert stopped.tells_nothing()
        rival.do("release", "k")
        assert stopped.answer()["token"] > second > first


def stand_in_a_transaction(path: str) -> None:
    """When asked, take the file's write lock as a process does that is stopped in the middle of a step."""
    database = sqlite3.connect(path, isolation_level=None)
    input()
    database.execute("BEGIN IMMEDIATE")
    tell("inside")
    input()
    database.execute("ROLLBACK")
    tell("outside")
    input()


WAIT = 0.3


def test_a_process_stopped_in_a_transaction_stops_others_no_longer_than_they_wait(url: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        known, new = stack.enter_context(Puppet(url)), stack.enter_context(Puppet(url))
        known.takes("other")  # it has a session; the other one has to open one first
        new.do("connect")
        inside = stack.enter_context(
            Child("tests.process.test_stop:stand_in_a_transaction", str(tmp_path / "locks.db"))
        )
        inside.ask()
        inside.expect("inside")
        inside.stop()

        for puppet in (known, new):
            puppet.begin("acquire", "k", WAIT)
        answers = [puppet.answer() for puppet in (known, new)]
        refused = known.do("try_acquire", "k")

        for answer in (*answers, refused):
            assert (answer["error"], answer["outcome"]) == ("EngineUnavailable", "not done"), answer
        assert max(answer["took"] for answer in answers) < WAIT + 1.0 + 0.2
        assert refused["took"] < 1.0 + 0.2

        inside.go_on()
        inside.ask()
        inside.expect("outside")
        assert known.do("look", "other")["valid"]
        tokens = [known.takes("k", wait=5.0)]
        known.do("release", "k")
        tokens.append(new.takes("k", wait=5.0))
        assert tokens[0] < tokens[1]
        assert new.do("inspect", "k")["waiters"] == 0


def test_a_waiter_gets_its_answer_in_time_when_the_file_is_stuck_behind_its_back(url: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        holder, waiter = stack.enter_context(Puppet(url)), stack.enter_context(Puppet(url))
        holder.takes("k")
        inside = stack.enter_context(
            Child("tests.process.test_stop:stand_in_a_transaction", str(tmp_path / "locks.db"))
        )
        waiter.begin("acquire", "k", 1.0)
        eventually(lambda: holder.do("inspect", "k")["waiters"] == 1, "it did not get in line")
        inside.ask()
        inside.expect("inside")
        inside.stop()

        answer = waiter.answer()

        # It cannot be said yet that its place is gone; the client goes on withdrawing it.
        assert (answer["error"], answer["outcome"]) == ("EngineUnavailable", "unknown"), answer
        assert answer["took"] < 1.0 + 1.0 + 0.2
        os.kill(inside.pid, 18)
        inside.ask()
        eventually(lambda: holder.do("inspect", "k")["waiters"] == 0, "its place was left behind")
