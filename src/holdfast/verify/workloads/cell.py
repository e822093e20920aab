"""Cells: reads and compare-and-swaps, which have to be as if one after the other."""

from __future__ import annotations

import itertools
import os

import holdfast
from holdfast.errors import Unsupported
from holdfast.verify.workloads.workload import Workload


class Cell(Workload):
    """A few cells; every value that is written is unique in the run."""

    name = "cell"
    names = (("cell", "verify/cell/a"), ("cell", "verify/cell/b"))
    _numbers = itertools.count(1)

    @classmethod
    def refusal(cls, client: holdfast.Client) -> str:
        try:
            client.cell(cls.names[0][1]).get()
        except Unsupported as refused:
            return str(refused)
        return ""

    async def turn(self) -> bool:
        actor, rng = self.actor, self.actor.rng
        _, name = rng.choice(self.names)
        cell = actor.client.cell(name)
        await actor.pause(rng.uniform(0.0, 0.05))
        call, found = await actor.call("cell_get", cell.get, name=name, kind="cell")
        if found is None:
            return False
        value, version = found
        actor.recorder.end(call, "ok", value=value, version=version)
        chance = rng.random()
        if chance < 0.3:
            return True
        # As whoever works on what was read: without it a quick engine has hardly two who write what both have read.
        await actor.pause(rng.uniform(0.0, 0.02))
        expected = None if chance < 0.4 else version
        if chance > 0.92:
            call, _ = await actor.call(
                "cell_delete", lambda: cell.delete(version), name=name, kind="cell", expected=version
            )
            if call.end is None:
                actor.recorder.end(call, "ok")
            return True
        written = f"{actor.process}-{os.getpid()}-{next(self._numbers)}"
        call, new = await actor.call(
            "cell_set", lambda: cell.set(written, expected), name=name, kind="cell", value=written, expected=expected
        )
        if new is None:
            return call.error == "Conflict"
        actor.recorder.end(call, "ok", version=new)
        return True
