"""Workers that die or stop at each step: never two recorded results, never a lost one, a late one refused.

`HOLDFAST_KILLS` makes the random part longer.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.verify.proxy import Proxy
from holdfast.verify.servers.redis import RedisServer
from tests.faults.children import Child, eventually, state
from tests.without_lock.programs import STEPS

TTL = 2.0
KILLS = int(os.environ.get("HOLDFAST_KILLS", "4"))
KEYS = 12 + 5 * KILLS


def heard(child: Child) -> list[dict[str, Any]]:
    """All that a child told before its end."""
    child.ended()
    told = []
    while True:
        try:
            told.append(child.hear())
        except AssertionError:
            return told


class Mine:
    """The survivor's work."""

    def __init__(self) -> None:
        self.tokens: list[int] = []

    def __call__(self, grant: holdfast.Grant) -> Any:
        self.tokens.append(grant.token)
        return ["survivor", grant.token]


@pytest.mark.one_recipe
@pytest.mark.parametrize("step", STEPS)
def test_a_worker_that_dies_at_any_step_leaves_one_result(url: str, step: str) -> None:
    with Child("tests.without_lock.programs:work_once", url, TTL, step) as child, holdfast.connect(url) as locks:
        told = heard(child)
        began = [each["token"] for each in told if "token" in each]
        work = Mine()

        result = locks.once("k").run(work)

        recorded = step in ("cell_set 2", "release 1")
        assert len(began) == (STEPS.index(step) >= STEPS.index("work begins"))
        assert work.tokens == [] if recorded else len(work.tokens) == 1
        assert result == (["child", began[0]] if recorded else ["survivor", work.tokens[0]])
        assert recorded or not began or work.tokens[0] > began[0]
        assert locks.once("k").run(Mine()) == result


def test_the_late_result_of_a_worker_that_was_stopped_is_refused(url: str) -> None:
    with Child("tests.without_lock.programs:work_slowly", url, TTL, True) as child, holdfast.connect(url) as locks:
        late = child.hear()["token"]
        child.stop()
        work = Mine()

        result = locks.once("k").run(work)
        child.go_on()
        child.ask()

        assert work.tokens[0] > late
        assert child.hear() == {"result": result}
        assert locks.once("k").run(Mine()) == result == ["survivor", work.tokens[0]]


def test_a_late_result_is_refused_while_its_successor_still_works(url: str) -> None:
    with Child("tests.without_lock.programs:work_slowly", url, TTL, True) as child, holdfast.connect(url) as locks:
        late = child.hear()["token"]
        child.stop()

        def work(grant: holdfast.Grant) -> Any:
            child.go_on()
            child.ask()  # the late result comes now, before this one
            # It was refused, because it asks again: it stands in line for this result.
            eventually(lambda: locks.inspect("k", kind="once").waiters, "the late worker did not ask again")
            return ["survivor", grant.token]

        result = locks.once("k").run(work)

        assert result[0] == "survivor"
        assert result[1] > late
        assert child.hear() == {"result": result}


@pytest.mark.one_recipe
@pytest.mark.parametrize("step", ["enter 1", "before cell_get 2", "cell_get 2", "cell_set 1", "work ends"])
def test_a_worker_that_was_stopped_at_any_step_does_not_disturb_its_successor(url: str, step: str) -> None:
    with (
        Child("tests.without_lock.programs:work_once", url, TTL, step, "stop") as child,
        holdfast.connect(url) as locks,
    ):
        eventually(lambda: state(child.pid) in "Tt", "it did not come to its step")
        done: list[int] = []

        def work(grant: holdfast.Grant) -> Any:
            done.append(grant.token)
            child.go_on()
            eventually(lambda: locks.inspect("k", kind="once").waiters, "the late worker did not ask again")
            return ["survivor", grant.token]

        result = locks.once("k").run(work)

        assert result == ["survivor", done[0]]
        assert len(done) == 1
        assert locks.once("k").run(Mine()) == result
        assert {"result": result} in heard(child)


def test_without_the_mark_a_late_result_overwrites(url: str) -> None:
    """The control: a lock, the work, and a write show why the tests above can fail."""
    with Child("tests.without_lock.programs:work_slowly", url, TTL, False) as child, holdfast.connect(url) as locks:
        late = child.hear()["token"]
        child.stop()
        with locks.lock("k") as grant:
            assert grant.token > late
            locks.cell("naive").set(["survivor", grant.token])
            child.go_on()
            child.ask()
            child.expect({"result": "written"})

            assert locks.cell("naive").get()[0] == ["late", late]


def entries(path: Path) -> list[tuple[str, int, Any]]:
    return [tuple(json.loads(line)) for line in path.read_text().splitlines()]


@pytest.mark.one_recipe
def test_kills_at_random_moments_leave_one_result_a_key(url: str, tmp_path: Path) -> None:
    seed = int(os.environ.get("HOLDFAST_SEED", "") or random.SystemRandom().randrange(2**32))
    print(f"HOLDFAST_SEED={seed}")
    chance, path = random.Random(seed), tmp_path / "results"

    def start() -> Child:
        return Child("tests.without_lock.programs:work_through", url, 0.5, str(path), KEYS)

    with ExitStack() as stack:
        children = [stack.enter_context(start()) for _ in range(3)]
        for _ in range(KILLS):
            victim = children.pop(chance.randrange(len(children)))
            victim.expect("ready")
            time.sleep(chance.uniform(0.0, 0.2))  # the moment is what is random here
            victim.kill()
            children.append(stack.enter_context(start()))
        for child in children:
            child.expect("ready")
            child.expect("done", within=60.0)

    written = entries(path)
    for key in range(KEYS):
        results = [value for what, which, value in written if (what, which) == ("got", key)]
        assert results, f"nobody got a result of {key}"
        assert all(result == results[0] for result in results), f"{key} has several results: {results}"
        assert results[0][1] in [value for what, which, value in written if (what, which) == ("began", key)]


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.mark.parametrize("direction", ["requests", "replies"])
def test_a_record_whose_request_or_reply_is_cut_is_made_once(redis_server: RedisServer, direction: str) -> None:
    with (
        Proxy("127.0.0.1", redis_server.port) as proxy,
        holdfast.connect(f"redis://127.0.0.1:{proxy.port}/0") as far,
        holdfast.connect(redis_server.url) as near,
    ):
        for byte in range(0, 60, 3):
            done: list[int] = []

            def work(grant: holdfast.Grant, byte: int = byte, done: list[int] = done) -> Any:
                done.append(grant.token)
                getattr(proxy, direction).set("cut", after=byte)
                return [byte, grant.token]

            result = far.once(f"k{byte}").run(work)
            proxy.heal()

            assert result == [byte, done[0]]
            assert len(done) == 1
            assert near.once(f"k{byte}").run(Mine()) == result
