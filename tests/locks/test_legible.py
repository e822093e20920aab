"""Text that is not Unicode: a file's or a thread's name may be anything, what a user says may not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from holdfast import aio

NO_TEXT = "caf\udce9"
"""What Python makes of the bytes of a Latin-1 file name."""

SAID: dict[str, Callable[[holdfast.Client], object]] = {
    "note": lambda locks: locks.lock("k", note=NO_TEXT),
    "value": lambda locks: locks.election("e", value=NO_TEXT),
}


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/locks.db"


@pytest.mark.parametrize("what", SAID)
def test_what_is_no_unicode_is_refused_before_anything_is_sent(url: str, what: str) -> None:
    with holdfast.connect(url) as locks, pytest.raises(holdfast.InvalidRequest):
        SAID[what](locks)


def test_a_program_whose_name_is_no_unicode_can_take_locks(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", [f"/srv/{NO_TEXT}.py"])
    with holdfast.connect(url) as locks, locks.lock("k"):
        assert [holder.app for holder in locks.inspect("k").holders] == ["caf?"]


def test_a_thread_whose_name_is_no_unicode_can_take_locks(url: str) -> None:
    seen: list[str] = []
    with holdfast.connect(url) as locks:

        def work() -> None:
            with locks.lock("k"):
                seen.extend(holder.thread for holder in locks.inspect("k").holders)

        thread = threading.Thread(target=work, name=NO_TEXT)
        thread.start()
        thread.join()

    assert seen == ["caf?"]


async def test_a_task_whose_name_is_no_unicode_can_take_locks(url: str) -> None:
    async with aio.connect(url) as locks:

        async def work() -> list[str]:
            async with locks.lock("k"):
                return [holder.thread for holder in (await locks.inspect("k")).holders]

        assert await asyncio.create_task(work(), name=NO_TEXT) == ["caf?"]
