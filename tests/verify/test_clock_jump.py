"""The time of day of a client, and of a lock server, can be set while it works."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from holdfast.runtime import clock
from holdfast.verify import client
from holdfast.verify.performance import Performance
from holdfast.verify.servers.lock_server import LockServer
from holdfast.verify.servers.process import Server
from holdfast.verify.targets.server import ServerTarget
from tests.verify.plugins import ROOT
from tests.verify.runs import judged, perform, told

CLIENTS = 4
AHEAD = 4
"""A seed whose first jumps of a single server are ahead: one back does no harm until it is undone."""


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


def sessions(done: Performance) -> int:
    """How many sessions the clients have had, all together."""
    return len({call.claim.rpartition("-")[0] for call in done.history("mutex").calls if call.claim})


@pytest.mark.parametrize("engine", ["server", "cluster"])
def test_nobody_loses_a_session_because_the_lock_servers_time_of_day_jumps(engine: str, tmp_path: Path) -> None:
    done = perform(engine, tmp_path / "run", "mutex", "server-clock-jump", ttl=20.0, clients=CLIENTS, seed=AHEAD)

    assert done.struck["server-clock-jump"] > 0
    assert sessions(done) == CLIENTS
    assert judged(done).result == "kept", told(judged(done))


class WallServer(LockServer):
    """One that counts its ttls by the time of day."""

    @property
    def program(self) -> list[str]:
        return ["tests.verify.wall_server", *super().program[1:]]


class WallTarget(ServerTarget):
    """A control: what such a server holds has to be lost."""

    def make(self) -> list[Server]:
        return [WallServer()]


def test_a_server_that_counts_by_the_time_of_day_loses_its_sessions_when_it_jumps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    target = WallTarget(tmp_path / "run")
    done = perform(target, tmp_path / "run", "mutex", "server-clock-jump", ttl=20.0, clients=CLIENTS, seed=AHEAD)

    assert sessions(done) > CLIENTS
