"""The resource that a lock protects: a list on a machine of its own, with or without a fence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.errors import StaleToken
from holdfast.runtime.simulated import Machine


@dataclass(frozen=True, slots=True)
class Read:
    """What is there? `token` is presented to the fence, if there is one."""

    name: str
    token: int | None


@dataclass(frozen=True, slots=True)
class Write:
    """Replace what is there."""

    name: str
    value: tuple[str, ...]
    token: int | None


@dataclass(frozen=True, slots=True)
class Written:
    """Done; `version` counts the writes that were accepted."""

    version: int


class Resource:
    """Lists by name. The check of a token and the write are one step."""

    repeatable = frozenset[type]()

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.values: dict[str, tuple[str, ...]] = {}
        self._highest: dict[str, int] = {}
        self._version = 0

    def handle(self, request: Read | Write, sender: object, answer: Callable[[Any], None]) -> None:
        """Answer a read with the value, a write with `Written`, a stale token with `StaleToken`."""
        if request.token is not None:
            highest = self._highest.get(request.name, 0)
            if request.token < highest:
                answer(StaleToken(request.name, request.token, highest))
                return
            self._highest[request.name] = request.token
        if isinstance(request, Read):
            answer(self.values.get(request.name, ()))
        else:
            self._version += 1
            self.values[request.name] = request.value
            answer(Written(self._version))
