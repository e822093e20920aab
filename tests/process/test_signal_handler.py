"""A signal handler that gives a lock back, whatever its thread was doing."""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import holdfast
from holdfast.api.entered import Entered
from holdfast.engines.memory import table
from tests.faults.child import tell
from tests.faults.children import Child, eventually


class Signalling(dict[Any, Any]):
    """The signal comes in the middle of whatever adds to it."""

    def setdefault(self, *args: Any) -> Any:
        signal.raise_signal(signal.SIGUSR1)
        return super().setdefault(*args)

    def get(self, *args: Any) -> Any:
        signal.raise_signal(signal.SIGUSR1)
        return super().get(*args)


def while_a_hold_is_kept(locks: holdfast.Client) -> None:
    session: Any = locks._core.session
    session.named = Signalling(session.named)
    locks.lock("other").acquire()


def while_a_with_begins(locks: holdfast.Client) -> None:
    entered: Entered[object] = Entered(locks._core)

    class Grants(list[Any]):
        def append(self, one: Any) -> None:
            super().append(one)
            signal.raise_signal(signal.SIGUSR1)

    entered._grants = Grants()
    own, handle = object(), signal.getsignal(signal.SIGUSR1)

    def leave(number: int, frame: FrameType | None) -> None:
        assert entered.pop() is own
        assert callable(handle)
        handle(number, frame)

    signal.signal(signal.SIGUSR1, leave)
    entered.push(own)


def in_a_step_of_the_table(locks: holdfast.Client) -> None:
    rows = table("handled").rows
    rows.sessions = Signalling(rows.sessions)
    locks.lock("other").acquire()


MOMENTS = {moment.__name__: moment for moment in (while_a_hold_is_kept, while_a_with_begins, in_a_step_of_the_table)}


def give_back_in_a_handler(url: str, moment: str) -> None:
    """Take a lock, and give it back in a handler that comes at this moment."""
    locks = holdfast.connect(url, ttl=600.0)
    held = locks.lock("held").acquire()

    def give_back(*_: object) -> None:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        # What cannot be done in the middle of a step is left to the keeper.
        with suppress(holdfast.EngineUnavailable):
            held.release()

    signal.signal(signal.SIGUSR1, give_back)
    MOMENTS[moment](locks)
    eventually(lambda: "held" not in [info.name for info in locks.list()], "it is held on")
    tell("given back")


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_signal_handler_that_releases_never_waits_for_its_own_thread(tmp_path: Path, moment: str) -> None:
    url = "memory://handled" if moment == "in_a_step_of_the_table" else f"sqlite:///{tmp_path}/locks.db"
    with Child("tests.process.test_signal_handler:give_back_in_a_handler", url, moment) as child:
        child.expect("given back")
        assert child.ended() == 0, child.complaints
