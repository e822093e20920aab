"""What a grant tells its holder, in both APIs."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from holdfast.errors import NotHeld
from holdfast.locks.client import Client
from holdfast.locks.hold import Entry


class GrantView:
    """The right to act under a lock until it is released or lost.

    It can be lost while your code runs: the process may pause for longer than the
    ttl. Pass `token` to whatever you write to, and let a fence refuse it.
    """

    __slots__ = ("__weakref__", "_body", "_client", "_entry", "_hold", "_loan_over", "_pid")

    def __init__(self, client: Client, entry: Entry, on_lost: Callable[[Any], object] | None = None) -> None:
        self._client, self._pid = client, client.pid
        self._loan_over = False
        self._hold = entry.held
        self._entry = entry
        if on_lost is not None:
            # Called with the grant when it is lost, until it is released.
            entry.unhook = self._hold.when_lost(partial(on_lost, self))

    @property
    def _released(self) -> bool:
        return self._loan_over or self._entry.released

    @property
    def name(self) -> str:
        """The name of the lock."""
        return self._hold.claim.name

    @property
    def kind(self) -> str:
        """`lock`, `semaphore`, `election`, …"""
        return self._hold.claim.kind.partition(".")[2]

    @property
    def owner(self) -> str:
        """Who holds it."""
        return self._hold.claim.owner

    @property
    def token(self) -> int:
        """Larger than that of every earlier grant that conflicts with this one."""
        return self._hold.token

    @property
    def slot(self) -> int | None:
        """Which permit of a semaphore it is, from 0."""
        return self._hold.slot

    @property
    def shared(self) -> bool:
        """Whether other readers may hold the lock at the same time."""
        return self._hold.claim.mode == "shared"

    @property
    def subtree(self) -> bool:
        """Whether it covers everything under its name."""
        return self._hold.claim.subtree

    @property
    def remaining(self) -> float:
        """For how many seconds it is good if no heartbeat comes through any more."""
        return 0.0 if self._released else self._hold.remaining

    @property
    def valid(self) -> bool:
        """Whether it is held now, by this process's own clock."""
        return not self._released and self._hold.valid

    @property
    def in_danger(self) -> bool:
        """Whether the engine is out of reach while the deadline has not passed yet."""
        return self.valid and self._hold.session.in_danger

    def check(self) -> None:
        """Raise LockLost or NotHeld unless it is held now."""
        if self._released:
            raise NotHeld(self.name, self.token)
        self._hold.check()

    def _end_loan(self) -> None:
        """It was lent to the caller's function, which has returned; the lender gives it back."""
        self._loan_over = True

    def __repr__(self) -> str:
        hold = self._hold
        if self._released:
            state = "released"
        elif hold.reason is not None:
            state = f"lost: {hold.reason}"
        else:
            state = f"{hold.remaining:.3g} s left"
        return f"<{type(self).__name__} {self.name!r} token={self.token} {state}>"

    def __del__(self, _warn: Any = warnings.warn) -> None:
        try:
            if self._released:
                return
        except AttributeError:
            return  # it was never made whole
        hold = self._hold
        if hold.released or hold.withdrawn or hold.reason is not None or self._pid != os.getpid():
            return
        # Nothing is sent from here. The lock stays held until the session ends: letting go of it
        # because nobody looks at the grant any more could surprise whoever still relies on it.
        _warn(
            f"{self!r} was neither released nor lost; it is held until the client closes",
            ResourceWarning,
            source=self,
        )
