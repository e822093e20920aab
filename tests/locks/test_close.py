"""A blocking close that is interrupted leaves nothing held, and may be repeated."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import holdfast
from tests.conformance.turns import THOROUGH
from tests.faults.children import eventually
from tests.faults.injection import NEVER_RAN, Moments, count_moments


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interrupted_close_is_finished_by_the_keeper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    locks, rival = holdfast.connect(url, ttl=600.0), holdfast.connect(url, ttl=600.0)
    held = locks.lock("k").acquire()
    keeper, verbs = locks._core.keeper, locks._core.verbs
    assert keeper is not None
    close_session = verbs.close_session

    async def interrupted(*args: Any) -> Any:
        if when == "after":
            await close_session(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(verbs, "close_session", interrupted)
    with pytest.raises(KeyboardInterrupt):
        locks.close()

    rival.lock("k").acquire(wait=5.0).release()
    assert not held.valid
    eventually(keeper.done.is_set, "the keeper goes on")
    locks.close()
    rival.close()


@pytest.mark.filterwarnings(NEVER_RAN)
def test_an_interrupt_at_any_moment_of_a_close_leaves_no_file_open(tmp_path: Path) -> None:
    path = tmp_path / "locks.db"

    def client() -> holdfast.Client:
        locks = holdfast.connect(f"sqlite:///{path}", ttl=600.0)
        locks.lock("k").acquire(wait=5.0).release()
        return locks

    moments = min(count_moments(client().close) for _ in range(2))
    for at in range(0, moments, 1 if THOROUGH else 4):
        locks, fault = client(), Moments(at, KeyboardInterrupt)
        with suppress(KeyboardInterrupt):
            fault.run(locks.close)
        locks.close()

        assert open_files(path) == [], f"interrupted at {fault.where}"


def open_files(path: Path) -> list[str]:
    """The files of a database that this process has open."""
    targets: list[str] = []
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the folder itself
            targets.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return [target for target in targets if target.startswith(str(path))]
