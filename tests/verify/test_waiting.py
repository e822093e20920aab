"""What is recorded of those who stood in line and gave up."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import holdfast
from holdfast.runtime.blocking import run
from holdfast.verify import history
from holdfast.verify.actor import Actor
from holdfast.verify.board import Board
from holdfast.verify.history import Call, Recorder
from holdfast.verify.waiting import Waiting


@pytest.fixture
def actor(tmp_path: Path) -> Iterator[Actor]:
    with holdfast.connect(f"sqlite:///{tmp_path}/locks.db", ttl=5.0) as client:
        Waiting.watch(client)
        recorder = Recorder(tmp_path, "c1")
        yield Actor(client, recorder, random.Random(1), 5.0, time.sleep, Board(tmp_path / "board"), str(tmp_path))
        recorder.close()


def recorded(folder: Path) -> Call:
    """The one acquire."""
    return next(call for call in history.read(folder).calls if call.op == "acquire")


def test_one_that_gave_up_is_known_to_have_stood_in_line(actor: Actor, tmp_path: Path) -> None:
    with holdfast.connect(f"sqlite:///{tmp_path}/locks.db") as rival, rival.lock("k"):
        assert run(actor.acquire(partial(actor.client.lock, "k"), 0.5, name="k")) is None

    call = recorded(tmp_path)
    assert (call.outcome, call.error) == ("failed", "NotAcquired")
    assert call.queued is not None
    assert call.start < call.queued < (call.end or 0.0)


def test_one_that_gave_up_a_permit_may_have_had_it_unheard(actor: Actor, tmp_path: Path) -> None:
    with holdfast.connect(f"sqlite:///{tmp_path}/locks.db") as rival, rival.semaphore("k", 1):
        build = partial(actor.client.semaphore, "k", 1)
        assert run(actor.acquire(build, 0.5, name="k", kind="semaphore", limit=1)) is None

    assert recorded(tmp_path).queued is None


def test_one_whose_session_may_be_over_is_not(actor: Actor, tmp_path: Path) -> None:
    """It may have lost its place without knowing it, as when its process was stopped: others were right to pass."""
    with holdfast.connect(f"sqlite:///{tmp_path}/locks.db") as rival, rival.lock("k"):
        waiting = Waiting(actor.client, actor.recorder.now)
        lock = actor.client.lock("k", on_wait=waiting.told)
        with pytest.raises(holdfast.NotAcquired):
            lock.acquire(wait=0.5)
        assert waiting.given_up() is not None

        actor.client._core.session.deadline = actor.client._core.io.now() - 1.0

        assert waiting.given_up() is None
