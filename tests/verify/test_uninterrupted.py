"""Nothing that was just being started when a signal came is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from holdfast.verify.client import Config
from holdfast.verify.crew import Member
from holdfast.verify.servers.redis import RedisServer
from holdfast.verify.uninterrupted import Uninterrupted
from tests.cli.stage import alive


class Told(BaseException):
    """What the handler of a signal raises."""


def hear(number: int, frame: FrameType | None) -> None:
    raise Told


class Interrupting(subprocess.Popen[Any]):
    """A signal comes when the process is there, and before anybody was told of it."""

    born: list[int]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.born.append(self.pid)
        os.kill(os.getpid(), signal.SIGHUP)


@pytest.fixture
def born(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The processes that were started while a signal came."""
    Interrupting.born = []
    before = signal.signal(signal.SIGHUP, hear)
    monkeypatch.setattr(subprocess, "Popen", Interrupting)
    yield Interrupting.born
    signal.signal(signal.SIGHUP, before)


def test_a_server_is_ended(born: list[int]) -> None:
    server = RedisServer()

    with pytest.raises(Told), server:
        pass

    assert [alive(pid) for pid in born] == [False]
    assert not server.folder.exists()


def test_a_client_is_ended(born: list[int], tmp_path: Path) -> None:
    config = Config(
        name="c1", place=0, url="memory://", ttl=1.0, folder=str(tmp_path), workloads=(), style="blocking",
        seed=1, namespace="n",
    )  # fmt: skip
    member = Member(config, (), ())

    with pytest.raises(Told):
        member.start()
    member.close()

    # The first may be the one that programs in Python come from (tests/prepared.py).
    assert [alive(pid) for pid in born[-1:]] == [False]


def test_a_signal_that_comes_later_is_heard_at_once(born: list[int]) -> None:
    with Uninterrupted():
        pass

    with pytest.raises(Told):
        os.kill(os.getpid(), signal.SIGHUP)


def test_a_thread_may_start_processes_too() -> None:
    done = []

    def work() -> None:
        with Uninterrupted():
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    assert done
