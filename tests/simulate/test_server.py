"""The lock server in virtual time: its loop, its connections, and what its disk forgets."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.runtime.simulated import Machine, World
from holdfast.simulate.acts import Crash, Cut, Use, running
from holdfast.simulate.lock_server import LockServer, ServerWorld
from holdfast.simulate.loop import SimulatedLoop
from holdfast.simulate.network import Network, Weather
from holdfast.simulate.scenario import play
from holdfast.simulate.scenarios import find
from holdfast.simulate.scenarios.server_crash_hasty import Hasty
from holdfast.simulate.search import search
from holdfast.simulate.simulation import quiet
from holdfast.simulate.streams import Cable
from holdfast.simulate.table_server import Disk


class Collects:
    """An end of a connection that keeps what it is told."""

    def __init__(self) -> None:
        self.data = b""
        self.problems: list[str] = []

    def received(self, data: bytes) -> None:
        self.data += data

    def lost(self, problem: str) -> None:
        self.problems.append(problem)


def a_loop() -> tuple[World, Machine, SimulatedLoop]:
    world = World(1, start=0.0)
    machine = Machine(world, "server")
    return world, machine, SimulatedLoop(world, machine)


def test_what_is_ready_runs_in_its_order_and_timers_at_their_time() -> None:
    world, _, loop = a_loop()
    seen: list[tuple[object, float]] = []
    for number in range(5):
        loop.call_soon(lambda number=number: seen.append((number, loop.time())))
    loop.call_later(2.0, lambda: seen.append(("later", loop.time())))
    loop.call_later(1.0, lambda: seen.append(("never", loop.time()))).cancel()
    world.run(10.0)

    assert seen == [(0, 0.0), (1, 0.0), (2, 0.0), (3, 0.0), (4, 0.0), ("later", 2.0)]


def test_tasks_and_futures_work_and_find_their_loop() -> None:
    world, _, loop = a_loop()
    done: asyncio.Future[str] = loop.create_future()

    async def work() -> str:
        assert asyncio.get_running_loop() is loop.loop
        return await done + "!"

    task = loop.create_task(work())
    loop.call_later(3.0, done.set_result, "yes")
    world.run(2.9)
    assert not task.done()
    world.run(3.1)

    assert task.result() == "yes!"
    assert asyncio._get_running_loop() is None


def test_nothing_runs_while_its_machine_is_stopped_or_after_its_process_has_ended() -> None:
    world, machine, loop = a_loop()
    seen: list[float] = []
    loop.call_later(1.0, lambda: seen.append(world.time))
    loop.call_later(5.0, lambda: seen.append(world.time))
    machine.stop()
    world.run(2.0)
    assert seen == []
    machine.go_on()
    world.run(3.0)
    assert seen == [2.0]
    loop.end()
    world.run(10.0)

    assert seen == [2.0]


@pytest.mark.parametrize("seed", range(30))
def test_bytes_arrive_in_order_or_the_connection_is_broken(seed: int) -> None:
    world = World(seed, start=0.0)
    network = Network(world, Weather(delay=0.01, lost=0.02, late=0.2, latest=1.0))
    cable = Cable(network, Machine(world, "client"), Machine(world, "server"))
    cable.up.end = end = Collects()
    sent = bytes(range(50))
    for at in sent:
        world.at(at * 0.01, lambda at=at: cable.up.send(bytes([at])))  # type: ignore[misc]
    world.run(10.0)

    assert end.data == sent[: len(end.data)]
    assert (end.data == sent) == (not cable.up.broken)


def test_a_batch_that_was_not_synced_is_forgotten_and_nobody_was_told_of_it() -> None:
    simulation = ServerWorld(3, ttl=4.0, disk=Disk(sync=0.5))
    server = simulation.server
    with quiet():
        Use(0.0, "A", "k", 1.0).perform(simulation, 0)
        while not server.rows.rows:
            simulation.world.run(simulation.world.time + 0.01)
        assert server.unsynced == 1
        assert not [line for line in simulation.chronicle.lines if line.event == "granted"]
        Crash(0.0, 0.1).perform(simulation, 1)
        simulation.world.run(simulation.world.time + 0.2)
        # The session was in a batch before it, and is kept.
        assert not server.rows.rows
        assert list(server.rows.sessions) == ["session_A_1"]
        Use(0.0, "B", "k", 0.1).perform(simulation, 2)
        simulation.world.run(simulation.world.time + 15.0)
        simulation.close()

    # A may have tried again meanwhile, or been told that nobody knows; nobody was granted what was forgotten.
    granted = [line.who for line in simulation.chronicle.lines if line.event == "granted"]
    assert "B" in granted


def test_a_waiter_whose_connection_broke_keeps_its_place() -> None:
    simulation = ServerWorld(4, ttl=20.0)
    with quiet():
        Use(0.0, "A", "k", 3.0).perform(simulation, 0)
        simulation.world.run(0.5)
        Use(0.5, "B", "k", 0.1).perform(simulation, 1)
        simulation.world.run(1.0)
        Use(1.0, "C", "k", 0.1).perform(simulation, 2)
        Cut(1.0, "B", 1.0).perform(simulation, 3)
        while running(simulation):
            simulation.world.run(simulation.world.time + 0.1)
        simulation.close()

    assert [line.who for line in simulation.chronicle.lines if line.event == "granted"] == ["A", "B", "C"]


def test_a_server_that_answers_before_it_commits_is_caught() -> None:
    result = search(find("server-crash"), 1, 60, manager_class=Hasty)

    assert {violation.claim for violation in result.found} & {"exclusion", "leaks"}


def test_a_mistake_inside_the_server_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client only sees an error, and goes on: without this, nobody would look."""
    monkeypatch.setattr(LockServer, "now", lambda self: 1 / 0)
    monkeypatch.setattr("holdfast.server.claim_commands.grammar.expect", lambda *args: 1 / 0)

    with pytest.raises(AssertionError, match="the server failed at"):
        play(find("server-cut"), 1)
