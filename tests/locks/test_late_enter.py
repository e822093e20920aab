"""A waiter's look that is stuck in the network and arrives when the claim is over does not bring it back."""

from __future__ import annotations

import pytest

from holdfast.simulate.acts import Act, Blow, Cancel, Cut, Use, running
from holdfast.simulate.network import Weather
from holdfast.simulate.simulation import Simulation, quiet

SEEDS = range(40)


def left_behind(seed: int, *acts: Act) -> tuple[int, list[str]]:
    """Play the acts in a world of this seed; how many looks came too late to be answered, and what is left."""
    simulation = Simulation(seed)
    doubtful: set[str] = set()
    with quiet():
        for number, act in enumerate(acts):
            simulation.world.run(act.at)
            act.perform(simulation, number)
        while running(simulation):
            simulation.world.run(simulation.world.time + 0.1)
            doubtful |= simulation.person("B").client.doubtful
            assert simulation.world.time < 100.0
        # The session lives on, and would keep a ghost for ever.
        simulation.world.run(simulation.world.time + 10.0)
        left = [name for _, name, _, _ in simulation.left_behind()]
        simulation.close()
    return len(doubtful), left


@pytest.mark.parametrize(
    ("use", "trouble"),
    [
        (Use(0.1, "B", "k", 0.1), Blow(1.5, 3.0, Weather(late=0.7, latest=9.0))),
        (Use(0.1, "B", "k", 0.1, wait=4.2), Cut(2.0, "B", 5.0)),
    ],
    ids=["it is granted and released", "it gives up"],
)
def test_a_look_that_arrives_when_its_claim_is_over_leaves_nothing_behind(use: Use, trouble: Act) -> None:
    found = [left_behind(seed, Use(0.0, "A", "k", 4.5), use, trouble) for seed in SEEDS]

    assert sum(late for late, _ in found) >= 10
    assert [left for _, left in found if left] == []


def test_a_cancelled_look_that_arrives_later_leaves_nothing_behind() -> None:
    found = [
        left_behind(seed, Use(0.0, "A", "k", 6.0), Use(0.1, "B", "k", 0.1), Cut(2.0, "B", 3.0), Cancel(4.8, "B"))
        for seed in SEEDS
    ]

    assert sum(late for late, _ in found) >= 10
    assert [left for _, left in found if left] == []
