"""A rehearsal: a lock engine of its own, in memory, in which locks are lost when the test says so."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

import holdfast
from holdfast import aio
from holdfast.api.settings import DEFAULT_NAMESPACE
from holdfast.engines import memory
from holdfast.errors import HoldfastError, NotAcquired
from holdfast.locks.client import Client as Core
from holdfast.locks.grant import GrantView
from holdfast.locks.spec import make_spec
from holdfast.testing.clock import Clock, ClockSignal
from holdfast.testing.table import RehearsalTable

P = ParamSpec("P")
R = TypeVar("R")

PATIENCE = 10.0
"""How long a holder is given to notice a loss, in real seconds."""

_numbers = itertools.count(1)


class Rehearsal:
    """Lose locks on purpose. Clients connect to `url`; blocking and asyncio ones share one lock table."""

    def __init__(self) -> None:
        self.clock = Clock()
        self._name = f"rehearsal-{next(_numbers)}"
        self.url = f"memory://{self._name}"
        """Where clients of this rehearsal connect to."""
        self._table = RehearsalTable(self.clock)
        self._rivals: dict[str, holdfast.Client] = {}
        self._taken: list[holdfast.Grant] = []
        """What the rival holds, until the end."""
        self._paused: list[ClockSignal] = []
        memory.use_table(self._name, self._table)

    def __enter__(self) -> Rehearsal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let everybody go on, and forget the lock table."""
        while self._paused:
            self.clock.pause(self._paused.pop(), False)
        for rival in self._rivals.values():
            rival.close()
        memory.use_table(self._name, None)

    # Time

    def advance(self, seconds: float) -> None:
        """Let time pass at once. Heartbeats that fall due on the way are sent; only paused clients miss theirs."""
        self.clock.advance(seconds)

    @contextmanager
    def pause(self, holder: holdfast.Client | aio.Client | GrantView) -> Iterator[None]:
        """Stop the heartbeats of a holder (a client, or the client of a grant), as a paused process would."""
        bell = self._bell(_core(holder))
        self.clock.pause(bell, True)
        self._paused.append(bell)
        try:
            yield
        finally:
            if bell in self._paused:
                self._paused.remove(bell)
                self.clock.pause(bell, False)

    # Losses

    def expire(self, grant: GrantView) -> None:
        """End the session of a grant, as if its ttl had run out, and return when its holder has been told.

        Everything that this client holds goes with it: a session is one proof of life for all of it.
        """
        core, hold = _core(grant), grant._hold
        self._table.end_session(hold.session.id)
        core.start_keeper().beat_soon()
        with self.clock.changed:
            told = self.clock.changed.wait_for(lambda: hold.session.over is not None, PATIENCE)
        assert told, f"{grant!r} was not lost: is its client paused?"

    def take_over(self, name: str, *, kind: str = "lock") -> holdfast.Grant:
        """Give the lock to somebody else, behind its holder's back; returns the new holder's grant.

        This is what a process finds that was stopped for longer than its ttl and has just gone on: the
        lock is somebody else's, and its own grant still says that it is valid. Nothing that the holder
        does by itself can help it now; only a fence can.
        """
        holders = self._table.holders(name, kind)
        assert holders, f"nobody holds {name!r}: take the lock first, then let it be taken over"
        for row in holders:
            self._table.silent.add(row.claim.session)
            self._table.end_session(row.claim.session)
        claim = holders[0].claim
        spec = make_spec(kind, name, subtree=claim.subtree, limit=claim.limit or None)
        rival = self._rival_in(claim.kind.partition(".")[0])
        try:
            taken = rival._lock(spec).acquire(wait=PATIENCE)
        except NotAcquired as error:
            raise AssertionError(f"{name!r} could not be taken over: others stand in line for it") from error
        self._taken.append(taken)
        return taken

    def taking_over(self, name: str, function: Callable[P, R]) -> Callable[P, R]:
        """The same function; when it has returned for the first time, the lock is taken over.

        To lose the lock in the middle of code that takes it itself, wrap what it calls there.
        """
        left = iter([True])

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            result = function(*args, **kwargs)
            if next(left, False):
                self.take_over(name)
            return result

        return call

    def drop_next_reply(self, of: str = "any") -> None:
        """Carry out the next request and lose its answer: the caller gets `EngineUnavailable`, outcome unknown.

        `of` is "acquire", "release", "withdraw" or "any" of them. Heartbeats are never meant.
        """
        self._table.lose_reply(of)

    @property
    def rival(self) -> holdfast.Client:
        """Another client, which takes locks over."""
        return self._rival_in(DEFAULT_NAMESPACE)

    def _rival_in(self, namespace: str) -> holdfast.Client:
        """The same in another namespace, where the lock of that name is another one."""
        if namespace not in self._rivals:
            self._rivals[namespace] = holdfast.connect(self.url, namespace=namespace, app="rival")
        return self._rivals[namespace]

    def _bell(self, core: Core) -> ClockSignal:
        bell = core.start_keeper().verbs.bell
        if not isinstance(bell, ClockSignal) or bell._clock is not self.clock:
            raise HoldfastError(f"{core} is not part of this rehearsal: connect to {self.url}")
        return bell


def _core(holder: Any) -> Core:
    """The inside of a client, or of the client of a grant."""
    core = holder._client if isinstance(holder, GrantView) else holder._core
    assert isinstance(core, Core)
    return core
