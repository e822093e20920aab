"""`kill -9` of any process at any moment.

A failing run prints its seed; `HOLDFAST_SEED` runs it again, `HOLDFAST_KILLS` makes it longer.
"""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

import holdfast
from tests.faults.children import Child, eventually
from tests.faults.history import History, violations
from tests.faults.puppet import Puppet

KILLS = int(os.environ.get("HOLDFAST_KILLS", "15"))
TTL = 0.6


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/locks.db"


@pytest.fixture
def chance() -> random.Random:
    seed = int(os.environ.get("HOLDFAST_SEED", "") or random.SystemRandom().randrange(2**32))
    print(f"HOLDFAST_SEED={seed}")
    return random.Random(seed)


def test_kills_at_random_moments_break_nothing(url: str, tmp_path: Path, chance: random.Random) -> None:
    history = History(tmp_path / "history")

    def start() -> Child:
        name = chance.choice(["k", "k", "k", "other"])
        return Child("tests.process.programs:take_turns", url, str(history.path), TTL, name)

    with ExitStack() as stack:
        stack.callback(history.close)
        children = [stack.enter_context(start()) for _ in range(4)]
        first = list(children)
        for child in first:
            child.expect("ready")
        for _ in range(KILLS):
            time.sleep(chance.uniform(0.0, 0.05))  # the moment is what is random here
            victim = children.pop(chance.randrange(len(children)))
            victim.kill()
            history.add("dead", victim.pid)
            children.append(stack.enter_context(start()))
        for child in children:
            if child not in first:
                child.expect("ready")
            child.kill()
            history.add("dead", child.pid)

        entries = history.entries()
        assert sum(what == "enter" for what, *_ in entries) > KILLS, "there was next to nothing to interrupt"
        assert violations(entries) == []
        check_nothing_is_left(url, tmp_path, max(token for _, _, token, _ in entries))


def check_nothing_is_left(url: str, folder: Path, highest: int) -> None:
    """Everybody is dead: their locks are free after a ttl, the file is sound, tokens go on growing."""
    began = time.monotonic()
    with holdfast.connect(url) as locks:
        for name in ("k", "other"):
            with locks.lock(name, wait=TTL + 1.0) as grant:
                assert grant.token > highest
        assert time.monotonic() - began < TTL + 1.0
        assert locks.list() == []
    with closing(sqlite3.connect(folder / "locks.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert database.execute("SELECT count(*) FROM claims").fetchone() == (0,)
        # One that begins with a dot was just being made. A client of a minute later removes it.
        wake = folder / "locks.db-wake"
        eventually(lambda: not list(wake.glob("[!.]*")), "pipes of dead sessions were left")


def test_the_judge_sees_a_run_without_the_lock(tmp_path: Path) -> None:
    history = History(tmp_path / "history")
    with ExitStack() as stack:
        stack.callback(history.close)
        # Each on a file of its own: nobody excludes anybody.
        for number in range(3):
            url = f"sqlite:///{tmp_path}/locks-{number}.db"
            stack.enter_context(Child("tests.process.programs:take_turns", url, str(history.path), TTL, "k")).expect(
                "ready"
            )
        eventually(lambda: violations(history.entries()), "the judge saw nothing wrong")


def held_for(start: Callable[[], Child], url: str) -> float:
    """How long a lock stays taken after whoever holds it was killed."""
    with start() as holder, holdfast.connect(url) as locks:
        eventually(lambda: locks.inspect("k").holders, "it did not take the lock")
        holder.kill()
        began = time.monotonic()
        with locks.lock("k"):
            return time.monotonic() - began


def test_a_killed_holder_holds_no_longer_than_its_ttl(url: str) -> None:
    assert held_for(lambda: Child("tests.process.programs:wait_for_ever", url, 1.0, "k"), url) < 1.0 + 0.5


def test_killed_waiters_cost_no_more_than_one_ttl_together(url: str) -> None:
    with holdfast.connect(url) as locks, ExitStack() as stack:
        held = locks.lock("k").acquire()
        children = [stack.enter_context(Child("tests.process.programs:wait_for_ever", url, 1.0, "k")) for _ in range(3)]
        eventually(lambda: len(locks.inspect("k").waiters) == 3, "they did not get in line")
        rival = stack.enter_context(Puppet(url))
        rival.begin("acquire", "k", None)
        eventually(lambda: len(locks.inspect("k").waiters) == 4, "the rival did not get in line")
        for child in children:
            child.kill()

        began = time.monotonic()
        held.release()

        assert rival.answer()["token"] > held.token
        assert time.monotonic() - began < 1.0 + 0.5
