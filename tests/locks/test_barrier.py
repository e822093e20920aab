"""What a barrier must not do when more come than it has parties."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

import holdfast
from holdfast.locks import barrier


def test_every_generation_is_passed_by_exactly_its_parties(tmp_path: Path) -> None:
    passed: list[int] = []

    def come_again(client: holdfast.Client) -> None:
        with suppress(holdfast.NotAcquired):  # the last one may be left alone
            for _ in range(12):
                passed.append(client.barrier("b", parties=2).wait(1.5))  # noqa: PERF401

    with holdfast.connect(f"sqlite:///{tmp_path}/locks.db") as locks:
        threads = [threading.Thread(target=come_again, args=(locks,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert len(passed) > 20
    assert set(Counter(passed).values()) == {2}


def test_a_generation_that_was_forgotten_lets_nobody_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(barrier, "KEEP", 0.2)
    with holdfast.connect("memory://forgotten") as locks:
        first = threading.Thread(target=lambda: locks.barrier("b", parties=2).wait(10.0))
        first.start()
        locks.barrier("b", parties=2).wait(10.0)
        first.join()

        with pytest.raises(holdfast.NotAcquired):
            locks.barrier("b", parties=2).wait(1.0)
