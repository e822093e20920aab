"""Who is hit, and what is known of the victim."""

from __future__ import annotations

import random
import signal
import subprocess
import threading
from pathlib import Path
from typing import cast

import pytest

from holdfast.verify.client import Config
from holdfast.verify.crew import Crew, Member
from holdfast.verify.faults.fault import Scene
from holdfast.verify.faults.partition import Partition
from holdfast.verify.network import Network
from holdfast.verify.servers.process import Server
from holdfast.verify.target import Target


class Idle(Server):
    """A server that is said to run."""

    running = True


class Led(Target):
    """Three servers, of which the second leads."""

    name = "led"

    def leader(self) -> Server:
        return self.servers[1]


@pytest.mark.parametrize("seed", range(20))
def test_a_victim_that_leads_is_known_to_lead_however_it_was_chosen(seed: int, tmp_path: Path) -> None:
    """Otherwise what an engine without consensus may do after losing its leader would be called broken."""
    target = Led(tmp_path)
    target.servers = [Idle() for _ in range(3)]
    try:
        server, leads = Scene(target, cast(Crew, None), 1.0, random.Random(seed)).server()

        assert leads == (server is target.servers[1])
    finally:
        for each in target.servers:
            each.close()


class Apart(Target):
    """Three servers that do not know each other, and of which none leads."""

    name = "apart"
    talks = False


class NoWires:
    """What cuts servers off, and does nothing."""

    def cut_off(self, side: list[Server], *, from_clients: bool) -> None:
        """Nothing is cut."""

    def heal(self) -> None:
        """Nothing was cut."""


@pytest.mark.parametrize(
    ("kind", "network", "clients_only"), [(Led, True, False), (Led, False, True), (Apart, True, True)]
)
def test_a_partition_that_cuts_off_only_clients_is_known_to_divide_no_servers(
    kind: type[Target], network: bool, clients_only: bool, tmp_path: Path
) -> None:
    """It cannot leave two primaries, so it excuses no equal token."""
    target = kind(tmp_path)
    target.servers = [Idle() for _ in range(3)]
    target.network = cast(Network, NoWires()) if network else None
    try:
        strike = Partition().begin(Scene(target, cast(Crew, Sleepers()), 1.0, random.Random(7)))

        assert strike is not None
        assert strike.details.get("clients_only", False) == clients_only
    finally:
        for each in target.servers:
            each.close()


class Sleeper:
    """A client that can be stopped, and may let go of what it holds just before it is."""

    running = True
    exposed = False

    def __init__(self, holds: int, lets_go: bool = False) -> None:
        self.holds, self.lets_go, self.stopped = holds, lets_go, False

    def stop(self) -> None:
        self.stopped, self.holds = True, 0 if self.lets_go else self.holds

    def send(self, number: signal.Signals) -> None:
        self.stopped = self.stopped and number != signal.SIGCONT


class Sleepers:
    """All clients there are."""

    def __init__(self, *members: Sleeper) -> None:
        self.members = members

    def holding(self, member: Sleeper) -> int:
        return member.holds


def scene_of(tmp_path: Path, seed: int, ttl: float, *members: Sleeper) -> Scene:
    return Scene(Led(tmp_path), cast(Crew, Sleepers(*members)), ttl, random.Random(seed))


@pytest.mark.parametrize("seed", range(20))
def test_a_client_that_holds_is_stopped_and_no_other(seed: int, tmp_path: Path) -> None:
    """One that only waits wakes with nothing that it could wrongly believe to hold."""
    members = Sleeper(0), Sleeper(1), Sleeper(0)

    found = scene_of(tmp_path, seed, 60.0, *members).stop_client()

    assert found is cast(object, members[1])
    assert [member.stopped for member in members] == [False, True, False]


def test_a_client_that_let_go_before_it_was_stopped_goes_on_at_once(tmp_path: Path) -> None:
    member = Sleeper(1, lets_go=True)

    assert scene_of(tmp_path, 1, 60.0, member).stop_client() is None
    assert not member.stopped


def test_where_nobody_holds_anything_for_a_ttl_anybody_is_stopped(tmp_path: Path) -> None:
    member = Sleeper(0)

    assert scene_of(tmp_path, 1, 60.0, member).stop_client() is None
    assert scene_of(tmp_path, 1, 0.0, member).stop_client() is cast(object, member)


def test_a_short_fault_waits_until_somebody_holds_something_but_not_for_ever(tmp_path: Path) -> None:
    member = Sleeper(0)
    scene = scene_of(tmp_path, 1, 60.0, member)

    assert not scene.busy()

    member.holds = 1
    assert scene.busy()
    assert scene_of(tmp_path, 1, 0.0, Sleeper(0)).busy()


def test_what_a_client_said_last_is_heard_although_it_has_ended(tmp_path: Path) -> None:
    config = Config("c1", 0, "memory://", 1.0, str(tmp_path), ("mutex",), "blocking", 1, "verify")
    member = Member(config, [], [])
    member._process = subprocess.Popen(["true"], text=True)
    member._process.wait()
    member._reader = threading.Timer(0.2, member.done.set)
    member._reader.start()

    member.hear_out()

    assert member.done.is_set()
