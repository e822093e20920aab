"""What clients do over and over while faults strike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import holdfast
from holdfast.verify.actor import Actor


class Workload(ABC):
    """One kind of work, written once for both APIs. A new one is a file here and a row in the table."""

    name: ClassVar[str]
    names: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Kind and name of everything that it takes: nothing of it may be left at the end."""

    breaks: ClassVar[str] = ""
    """A control's: the claim that has to be found broken."""

    def __init__(self, actor: Actor) -> None:
        self.actor = actor

    @classmethod
    def refusal(cls, client: holdfast.Client) -> str:
        """Why this client's engine cannot do it; empty if it can."""
        return ""

    @classmethod
    def prepare(cls, folder: str) -> None:
        """Make what has to be there before the first client starts."""
        return

    @abstractmethod
    async def turn(self) -> bool:
        """One round of it; whether it came to its end as it does when all is well."""

    @property
    def wait(self) -> float:
        """How long to stand in line, mostly patient, sometimes not: giving up is a case of its own."""
        rng, ttl = self.actor.rng, self.actor.ttl
        return rng.uniform(0.0, ttl / 2) if rng.random() < 0.15 else ttl * rng.uniform(3.0, 5.0)
