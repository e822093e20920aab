"""A blocking close that is interrupted leaves nothing held, and may be repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import holdfast
from tests.faults.children import eventually


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
