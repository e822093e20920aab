"""A run, and what it does to clients and servers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.verify.network import Network
from holdfast.verify.servers.redis import RedisServer
from holdfast.verify.stage import who_is_left
from holdfast.verify.target import Target
from holdfast.verify.targets.redis import RedisTarget
from tests.verify.plugins import install
from tests.verify.runs import judged, perform, told


def test_blocking_and_asyncio_clients_all_come_through_after_healing(tmp_path: Path) -> None:
    done = perform("sqlite", tmp_path / "run", "mutex", "kill-client,pause-client", ttl=1.0)

    history = done.history("mutex")
    heal = history.note("heal")
    assert heal is not None
    after = {call.process for call in history.calls if call.op == "acquire" and call.ok and (call.end or 0) > heal.at}
    assert after == {"c1", "c2", "c3", "c4"}
    assert done.surprises == []


def test_a_killed_client_comes_back_under_its_name_with_another_session(tmp_path: Path) -> None:
    done = perform("sqlite", tmp_path / "run", "mutex", "kill-client", ttl=1.0)

    history = done.history("mutex")
    killed = {fault.target for fault in history.faults}
    assert killed
    for name in killed:
        assert len({call.id.split(".")[1] for call in history.calls if call.process == name}) > 1


def test_what_a_target_cannot_suffer_is_reported_with_the_reason(tmp_path: Path) -> None:
    done = perform("sqlite", tmp_path / "run", "mutex", "stall,partition,kill-server,clock", seconds=0.5, ttl=1.0)

    assert set(done.not_tested) == {"stall", "partition", "kill-server", "clock"}
    assert all(done.not_tested.values())
    assert not done.struck


def test_an_error_that_no_workload_knows_is_a_surprise_and_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, odd="tests.verify.mutants:OddEngine")

    done = perform(f"odd:///{tmp_path}/locks.db", tmp_path / "run", "cell", seconds=0.5, ttl=1.0, within=1.0)

    assert "nobody expects this" in done.surprises[0]
    assert judged(done).result == "broken"


def test_the_users_own_deployment_is_left_as_it_was(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/own.db"
    with holdfast.connect(url) as locks:
        own = locks.lock("verify/mutex/a").acquire()
        locks.cell("verify/cell/a").set("mine")

        found = judged(perform(url, tmp_path / "run", "mutex,cell", "pause-client", ttl=1.0))

        assert found.result == "kept", told(found)
        own.check()
        own.release()
        assert locks.cell("verify/cell/a").get()[0] == "mine"


def test_a_proxied_client_of_a_real_server_suffers_what_others_do_not(tmp_path: Path) -> None:
    done = perform(RedisTarget(tmp_path / "run"), tmp_path / "run", "mutex", "cut,drop-replies", ttl=1.0)

    history = done.history("mutex")
    unknown = {call.process for call in history.calls if call.outcome == "unknown" and call.end is not None}
    assert {fault.target for fault in history.faults} <= {"c2", "c3"}
    assert unknown <= {"c2", "c3"}
    assert judged(done).result == "kept", told(judged(done))


class Reached:
    """Whether one server can be spoken to from where another one is."""

    def __init__(self, servers: list[RedisServer]) -> None:
        self.one, self.other = servers

    def __call__(self) -> bool:
        ask = f"import socket\nsocket.create_connection(({self.other.host!r}, {self.other.port}), 0.5)"
        done = subprocess.run([*self.one.prefix, sys.executable, "-c", ask], capture_output=True, check=False)
        return done.returncode == 0


def test_servers_that_are_cut_off_from_each_other_are_still_reached_from_here() -> None:
    servers = [RedisServer(), RedisServer()]
    reached = Reached(servers)
    with Network(servers) as network, servers[0], servers[1]:
        assert reached()

        network.cut_off(servers[:1])

        assert not reached()
        assert servers[0].is_ready()
        assert servers[1].is_ready()
        network.heal()
        assert reached()


def test_a_target_says_what_it_is_without_secrets(tmp_path: Path) -> None:
    from holdfast.verify.targets import make_target

    target: Target = make_target("redis://user:secret@host:1/0", tmp_path)

    assert "secret" not in target.shown


def test_servers_that_still_choose_who_leads_are_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with holdfast.connect("memory://just-healed") as client, client.lock("k"):
        look, refusals = client.inspect, [1, 2]

        def inspect(name: str, *, kind: str) -> holdfast.LockInfo:
            if refusals:
                refusals.pop()
                raise holdfast.EngineUnavailable("redis://somewhere", "the server is a replica", "not done")
            return look(name, kind=kind)

        monkeypatch.setattr(client, "inspect", inspect)

        assert len(who_is_left(client, "lock", "k")["holders"]) == 1
