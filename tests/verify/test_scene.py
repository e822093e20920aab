"""Who is hit, and what is known of the victim."""

from __future__ import annotations

import random
from pathlib import Path
from typing import cast

import pytest

from holdfast.verify.crew import Crew
from holdfast.verify.faults.fault import Scene
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
