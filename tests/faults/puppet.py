"""A child process that does with a client what its test tells it, one step at a time.

It works on any engine's URL. Every answer is a dictionary with the time the step took; an error
becomes `error`, its class, and what it says of itself.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import holdfast
from holdfast.runtime import clock
from tests.faults.child import tell
from tests.faults.children import PATIENCE, Child


class Puppet(Child):
    """The test's side."""

    def __init__(self, url: str, ttl: float = 10.0, prefix: tuple[str, ...] | list[str] = ()) -> None:
        super().__init__("tests.faults.puppet:play", url, ttl, prefix=prefix)

    def do(self, step: str, *args: object, within: float = PATIENCE) -> dict[str, Any]:
        """Do a step and return its answer."""
        self.begin(step, *args)
        return self.answer(within)

    def begin(self, step: str, *args: object) -> None:
        """Begin a step, without waiting for its answer."""
        self.ask(json.dumps([step, *args]))

    def answer(self, within: float = PATIENCE) -> dict[str, Any]:
        """The answer to a step that was begun."""
        answer: dict[str, Any] = self.hear(within)
        return answer

    def takes(self, name: str, wait: float | None = None) -> int:
        """Acquire, which has to succeed; the token."""
        answer = self.do("acquire", name, wait)
        assert "token" in answer, answer
        token: int = answer["token"]
        return token


class Player:
    """The child's side: every public method is a step."""

    def __init__(self, url: str, ttl: float) -> None:
        self.url, self.ttl = url, ttl
        self.client: holdfast.Client | None = None
        self.grants: dict[str, holdfast.Grant] = {}
        self.lost: dict[str, Any] = {}

    @property
    def locks(self) -> holdfast.Client:
        if self.client is None:
            self.client = holdfast.connect(self.url, ttl=self.ttl)
        return self.client

    def connect(self) -> dict[str, Any]:
        return {"connected": repr(self.locks)}

    def acquire(self, name: str, wait: float | None) -> dict[str, Any]:
        grant = self.locks.lock(name).acquire(wait=wait)
        self.grants[name], self.lost[name] = grant, grant.lost
        return {"token": grant.token, "at": clock.now()}

    def try_acquire(self, name: str) -> dict[str, Any]:
        grant = self.locks.lock(name).try_acquire()
        if grant is None:
            return {"refused": True}
        self.grants[name], self.lost[name] = grant, grant.lost
        return {"token": grant.token}

    def look(self, name: str) -> dict[str, Any]:
        grant = self.grants[name]
        return {"valid": grant.valid, "in_danger": grant.in_danger, "lost": self.lost[name].is_set()}

    def wait_lost(self, name: str, seconds: float) -> dict[str, Any]:
        return {"lost": self.lost[name].wait(seconds)}

    def release(self, name: str) -> dict[str, Any]:
        self.grants[name].release()
        return {"released": True}

    def set_cell(self, name: str, value: Any) -> dict[str, Any]:
        return {"version": self.locks.cell(name).set(value)}

    def get_cell(self, name: str) -> dict[str, Any]:
        value, version = self.locks.cell(name).get()
        return {"value": value, "version": version}

    def inspect(self, name: str) -> dict[str, Any]:
        info = self.locks.inspect(name)
        return {"holders": len(info.holders), "waiters": len(info.waiters)}

    def close(self) -> dict[str, Any]:
        self.locks.close()
        return {"closed": True}


def play(url: str, ttl: float) -> None:
    """Do what is asked until nothing more is."""
    player = Player(url, ttl)
    for line in sys.stdin:
        step, *args = json.loads(line)
        began = time.monotonic()
        try:
            answer = getattr(player, step)(*args)
        except holdfast.HoldfastError as error:
            answer = {"error": type(error).__name__, "message": str(error), "outcome": getattr(error, "outcome", "")}
        answer["took"] = time.monotonic() - began
        tell(answer)
    # The end of the test: nothing is to be tidied up, and nobody would read it.
    os._exit(0)
