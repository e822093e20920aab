"""The verbs of an engine that keeps neither cells nor tickets nor letters."""

from __future__ import annotations

from typing import NoReturn

from holdfast.core.table.commands import Done
from holdfast.model import Claim


class NarrowVerbs:
    """Verbs that the engine's guarantees rule out: a client refuses them before they get here."""

    async def hand_over(self, claim: Claim, ticket: str, until: float) -> NoReturn:
        raise AssertionError("guarantees.hand_over is False")

    async def adopt(self, claim: Claim, source: str, ticket: str, until: float) -> NoReturn:
        raise AssertionError("guarantees.hand_over is False")

    async def cell_get(self, kind: str, name: str, until: float) -> NoReturn:
        raise AssertionError("guarantees.cells is False")

    async def cell_set(
        self, kind: str, name: str, value: bytes | None, version: int | None, keep: float | None, until: float
    ) -> NoReturn:
        raise AssertionError("guarantees.cells is False")

    async def cell_watch(self, session: str, id_: str, kind: str, name: str, until: float) -> NoReturn:
        raise AssertionError("guarantees.cells is False")

    async def watch(self, session: str, id_: str, kind: str, prefix: str, until: float) -> NoReturn:
        raise AssertionError("guarantees.events is empty")

    async def fetch(self, session: str, id_: str, after: int, until: float) -> NoReturn:
        raise AssertionError("guarantees.events is empty")

    async def unwatch(self, session: str, id_: str, until: float) -> Done:
        return Done()
