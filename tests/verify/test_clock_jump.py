"""A client's time of day can be set while it works."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from holdfast.runtime import clock
from holdfast.verify import client
from tests.verify.runs import judged, perform, told


def test_the_time_of_day_jumps_and_returns_and_deadlines_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", time.time)
    began, counted = time.time(), clock.now()
    client.jump(-86_400)

    assert began - 86_401 < time.time() < began - 86_000
    assert clock.now() - counted < 300

    client.jump(0)
    assert time.time() >= began


def test_a_client_whose_time_of_day_jumps_goes_on(tmp_path: Path) -> None:
    done = perform("sqlite", tmp_path / "run", "mutex,protected", "clock-jump", ttl=1.0)

    assert done.struck["clock-jump"] > 0
    assert judged(done).result == "kept", told(judged(done))
