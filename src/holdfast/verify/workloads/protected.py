"""A protected set: read it, think for up to the ttl, write it back with one more element."""

from __future__ import annotations

import itertools
import os
from functools import partial
from typing import ClassVar

from holdfast.errors import StaleToken
from holdfast.verify.actor import Held
from holdfast.verify.resource import Resource
from holdfast.verify.workloads.workload import Workload

PRIZE = 8
"""How much more a fault is worth between read and write than at any other moment of a hold."""


LONGEST_THOUGHT = 4.0
"""Seconds; where a ttl is longer, everybody would wait for one who thinks."""


class Protected(Workload):
    """The write does not look at the grant: a pause can come after the last look, only the fence can refuse."""

    name = "protected"
    names: ClassVar[tuple[tuple[str, str], ...]] = (("lock", "verify/protected/a"), ("lock", "verify/protected/b"))
    fenced = True
    _numbers = itertools.count(1)

    @classmethod
    def prepare(cls, folder: str) -> None:
        Resource(folder, cls.name).create()

    async def turn(self) -> bool:
        actor, rng = self.actor, self.actor.rng
        _, name = rng.choice(self.names)
        held = await actor.acquire(partial(actor.client.lock, name), self.wait, name=name)
        if held is None:
            return False
        done = await self.add_one(held, name)
        return await actor.release(held) and done

    async def add_one(self, held: Held, name: str) -> bool:
        """Read, think, write back; whether it was accepted."""
        actor = self.actor
        with Resource(actor.folder, self.name) as resource:
            token = held.token if self.fenced else None
            call = actor.recorder.begin("read", **held.facts, fenced=self.fenced)
            try:
                found = resource.read(name, token)
            except StaleToken as stale:
                actor.recorder.end(call, "failed", error=type(stale).__name__)
                return False
            actor.recorder.end(call, "ok", value=found)
            actor.board.add(PRIZE)
            await actor.pause(self.thinking())
            actor.board.add(-PRIZE)
            element = f"{actor.process}-{os.getpid()}-{next(self._numbers)}"
            call = actor.recorder.begin("write", **held.facts, fenced=self.fenced, value=element)
            try:
                version = resource.write(name, [*found, element], token)
            except StaleToken as stale:
                actor.recorder.end(call, "failed", error=type(stale).__name__)
                return False
            actor.recorder.end(call, "ok", version=version)
        return True

    def thinking(self) -> float:
        """Mostly short; now and then up to the ttl, so that a pause finds somebody between read and write."""
        rng, ttl = self.actor.rng, min(self.actor.ttl, LONGEST_THOUGHT)
        return rng.uniform(0.0, ttl) if rng.random() < 0.15 else rng.uniform(0.0, ttl / 20)
