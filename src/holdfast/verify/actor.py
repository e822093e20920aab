"""One thread or task of a client process, which calls the API and records every call.

The workloads are written once for both APIs: `do` awaits what an asyncio client returns, and takes
what a blocking one returns as it is.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from holdfast.errors import (
    Conflict,
    Deadlock,
    EngineUnavailable,
    HoldfastError,
    InvalidRequest,
    LockLost,
    NotAcquired,
    NotHeld,
    StaleToken,
    Unsupported,
)
from holdfast.verify.board import Board
from holdfast.verify.history import Call, Outcome, Recorder
from holdfast.verify.waiting import Waiting

NOT_DONE = (NotAcquired, Deadlock, Conflict, StaleToken, LockLost, NotHeld, InvalidRequest, Unsupported)


async def do(value: Any) -> Any:
    """What a call of either API gives in the end."""
    return await value if inspect.isawaitable(value) else value


def outcome_of(error: HoldfastError) -> Outcome:
    """What is known of a call that raised this."""
    if isinstance(error, EngineUnavailable):
        return "failed" if error.outcome == "not done" else "unknown"
    return "failed" if isinstance(error, NOT_DONE) else "unknown"


@dataclass
class Held:
    """A grant, and what its records have in common."""

    grant: Any
    facts: dict[str, Any]

    @property
    def token(self) -> int:
        return int(self.grant.token)

    @property
    def deadline(self) -> float:
        """On this process's own clock. Read at once, not computed from what remains: a pause can come between."""
        return float(self.grant._hold.deadline)


@dataclass
class Actor:
    """What a workload needs to act: a client, a recorder, chance, and time."""

    client: Any
    recorder: Recorder
    rng: random.Random
    ttl: float
    sleep: Callable[[float], Any]
    board: Board
    folder: str
    """Where the protected resources of the run are."""
    shift: float = 0.0
    """How far this process's clock is ahead of the history's."""
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def process(self) -> str:
        return self.recorder.process

    async def pause(self, seconds: float) -> None:
        """Let time pass."""
        await do(self.sleep(seconds))

    async def acquire(self, build: Callable[..., Any], wait: float | None, **facts: Any) -> Held | None:
        """Take what `build(on_lost=, on_wait=)` makes, standing in line for `wait` seconds; None if that failed."""
        now, recorder = self.recorder.now, self.recorder
        waiting = Waiting(self.client, now)
        identity: dict[str, Any] = {key: facts[key] for key in ("name", "kind", "mode") if key in facts}

        def lost(grant: Any) -> None:
            told = now()
            deadline = min(told, grant._hold.deadline - self.shift)
            recorder.moment("lost", **identity, owner=grant.owner, claim=grant._hold.claim.id, deadline=deadline)

        lock = build(on_lost=lost, on_wait=waiting.told)
        op = "campaign" if hasattr(lock, "campaign") else "acquire"
        call = recorder.begin(op, **facts, wait=wait)
        try:
            grant = await do(lock.campaign(wait) if op == "campaign" else lock.acquire(wait))
        except HoldfastError as error:
            # One that was granted a permit and has not heard of it yet keeps nobody from the next one: it may give up,
            # and was not overtaken. Of other locks nobody can have what it was granted.
            queued = None if facts.get("limit") else waiting.given_up()
            recorder.end(call, outcome_of(error), **said(error), queued=queued)
            return None
        claim = grant._hold.claim.id
        held = Held(grant, {**identity, "claim": claim, "owner": grant.owner, "token": grant.token})
        self.board.add(1)
        recorder.end(
            call, "ok", owner=grant.owner, claim=claim, token=grant.token, slot=grant.slot,
            deadline=held.deadline - self.shift, queued=waiting.since(claim),
        )  # fmt: skip
        return held

    async def release(self, held: Held, op: str = "release") -> bool:
        """Give it back; whether it was still ours."""
        # From here on nobody looks at the grant any more: who is stopped now shows nothing about it.
        self.board.add(-1)
        call = self.recorder.begin(op, **held.facts)
        try:
            await do(held.grant.release())
        except HoldfastError as error:
            self.recorder.end(call, outcome_of(error), **said(error))
            return False
        self.recorder.end(call, "ok")
        return True

    async def look_back(self, held: Held, name: str, kind: str = "lock") -> None:
        """Look who holds what this process has just given back, while it is still the same session that looks."""
        session, claim = self.client._core.session, held.facts["claim"]
        if session is None or not claim.startswith(f"{session.id}-"):
            return
        facts = {key: held.facts[key] for key in ("name", "owner", "claim")}
        call, info = await self.call("inspect", lambda: self.client.inspect(name, kind=kind), **facts, kind=kind)
        if info is not None:
            left = {
                "holders": [party.claim for party in info.holders],
                "waiters": [party.claim for party in info.waiters],
            }
            self.recorder.end(call, "ok", value=left)

    def check(self, held: Held) -> bool:
        """Look whether the grant is good. What counts is the moment before: a pause may come after the look."""
        before, deadline = self.recorder.now(), held.deadline - self.shift
        valid = bool(held.grant.valid)
        self.recorder.moment("check", "ok" if valid else "failed", at=before, **held.facts, deadline=deadline)
        return valid

    async def hold(self, held: Held, seconds: float) -> bool:
        """Hold it for a while, looking now and then; whether it was good all the time."""
        pieces = max(1, int(seconds / 0.1))
        for _ in range(pieces):
            if not self.check(held):
                return False
            await self.pause(seconds / pieces)
        return self.check(held)

    async def call(self, op: str, make: Callable[[], Any], **facts: Any) -> tuple[Call, Any]:
        """Any other call, recorded; its result is None if it failed."""
        call = self.recorder.begin(op, **facts)
        try:
            result = await do(make())
        except HoldfastError as error:
            more = {"version": error.current} if isinstance(error, Conflict) else {}
            return self.recorder.end(call, outcome_of(error), **said(error), **more), None
        return call, result


def said(error: HoldfastError) -> dict[str, Any]:
    """An error as a record keeps it."""
    return {"error": type(error).__name__, "details": {"message": str(error)}}
