"""What keeps a client open that its user has forgotten."""

from __future__ import annotations

import gc
import warnings
from pathlib import Path

import holdfast
from holdfast.locks.keeper import Keeper
from tests.faults.children import eventually


def test_a_lock_object_keeps_its_client_open(tmp_path: Path) -> None:
    lock = holdfast.connect(f"sqlite:///{tmp_path}/locks.db").lock("k")
    with lock:
        pass
    gc.collect()
    with lock as grant:
        grant.check()
    holdfast.Client(lock._client).close()


def test_what_a_forgotten_client_holds_stays_held(tmp_path: Path) -> None:
    """A program that never gives it back may do without any name for it."""
    url = f"sqlite:///{tmp_path}/locks.db"

    def hold() -> Keeper:
        grant = holdfast.connect(url, ttl=30.0).lock("k").acquire()
        assert grant._client.keeper is not None
        return grant._client.keeper

    told: list[str] = []
    with holdfast.connect(url) as rival, warnings.catch_warnings():
        warnings.simplefilter("always")
        # A recorded warning would refer to what it is about.
        warnings.showwarning = lambda message, *_: told.append(str(message))
        keeper = hold()
        gc.collect()
        eventually(lambda: len(told) == 2, "no warning")
        assert sorted(text[:6] for text in told) == ["<Grant", "sqlite"]
        beats = keeper._beat_at
        keeper.beat_soon()
        eventually(lambda: keeper._beat_at > beats, "no heartbeat")
        assert rival.lock("k").try_acquire() is None

        rival.break_lock("k", force=True)
        eventually(keeper.done.is_set, "a client that holds nothing any more goes on")
