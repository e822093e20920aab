"""Waiters that stand in a known order, and in which order they were served."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import holdfast
from holdfast.errors import EngineUnavailable, HoldfastError, LockLost
from holdfast.verify.servers.process import wait_until

SERVED_WITHIN = 120.0


class Standing(threading.Thread):
    """One that stands in line until it is served."""

    def __init__(self, locks: holdfast.Client, name: str, served: Callable[[int], None]) -> None:
        super().__init__(daemon=True)
        self._locks, self._lock, self._served = locks, name, served
        self.problem: HoldfastError | None = None
        """What it met: the test judges it, in its own thread."""

    def run(self) -> None:
        try:
            grant = self._locks.lock(self._lock).acquire(wait=SERVED_WITHIN)
            self._served(grant.token)
            let_go(grant)
        except HoldfastError as error:
            self.problem = error


def let_go(grant: holdfast.Grant) -> None:
    """Release, as often as it takes: an answer may get lost on the way."""

    def released() -> bool:
        try:
            grant.release()
        except EngineUnavailable:
            return False
        except LockLost:
            return True
        return True

    wait_until(released, SERVED_WITHIN, "a release")


class Line:
    """A holder, and waiters behind it, each seen in its place before the next one comes."""

    def __init__(self, clients: list[holdfast.Client], name: str, length: int = 3) -> None:
        self.served: list[tuple[int, int]] = []
        """Number in line and token, in the order of being served."""
        self._held = clients[0].lock(name).acquire(wait=SERVED_WITHIN)
        self._waiting: list[Standing] = []
        for number in range(length):
            one = Standing(clients[1 + number % (len(clients) - 1)], name, self._note(number))
            one.start()
            self._waiting.append(one)
            wait_until(lambda: self._stands(clients[0], name), SERVED_WITHIN, f"waiter {number} in its place")

    def _note(self, number: int) -> Callable[[int], None]:
        return lambda token: self.served.append((number, token))

    def _stands(self, looker: holdfast.Client, name: str) -> bool:
        """Whether the newest one stands in line too."""
        assert self._waiting[-1].problem is None, self._waiting[-1].problem
        try:
            return len(looker.inspect(name).waiters) == len(self._waiting)
        except EngineUnavailable:
            return False  # a fault before this one may not be over for this client

    def problems(self) -> list[Any]:
        """Let them pass; what is wrong with the order and the tokens, or what one of them met."""
        let_go(self._held)
        for one in self._waiting:
            one.join(SERVED_WITHIN)
        tokens = [self._held.token, *(token for _, token in self.served)]
        found: list[Any] = [one.problem for one in self._waiting if one.problem is not None]
        if [number for number, _ in self.served] != list(range(len(self._waiting))):
            found.append(f"served in the order {self.served}")
        if tokens != sorted(set(tokens)):
            found.append(f"tokens do not grow: {tokens}")
        return found
