"""Somebody who watches, and writes down what happened to which lock."""

from __future__ import annotations

from typing import Any

from holdfast import LockEvent
from tests.conformance.apis import Front
from tests.conformance.stage import Stage, eventually

PROBE = "probe"


class Witness:
    """Every event of a client's namespace since `begin` has returned, in order."""

    def __init__(self, stream: Front) -> None:
        self._stream = stream
        self._events: list[LockEvent] = []

    @classmethod
    async def begin(cls, stage: Stage, client: Front) -> Witness:
        """Watch from now on. A lock of its own is taken until that is seen: then everything is."""
        witness = cls(stage.another(client).watch())
        stage.begin(witness._write_down())
        prober = stage.another(client)
        while not witness._events:
            await (await prober.lock(PROBE).acquire()).release()
        return witness

    async def _write_down(self) -> None:
        while True:
            self._events.append(await self._stream.next(within=60.0))

    def events(self, name: str) -> list[LockEvent]:
        """What happened to one lock."""
        return [event for event in self._events if event.name == name]

    def told(self) -> list[tuple[Any, str]]:
        """What happened, and to which lock."""
        return [(event.type, event.name) for event in self._events if event.name != PROBE]

    async def sees(self, *story: tuple[str, str]) -> None:
        """Wait until as much has happened as the story tells, and compare."""
        await eventually(lambda: len(self.told()) >= len(story))
        assert self.told() == list(story)
