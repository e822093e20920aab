"""What running calls take and give back, so that a call that ends half-way leaves nothing behind.

An interrupt can end a call at any bytecode, also in its clean-up. So each entry is recorded
together with the call before the first byte is sent. It leaves the record when the caller has
its grant, or when the claim is gone or the keeper has its withdrawal. What an ended call has left
in the record is withdrawn by the keeper.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from holdfast.errors import LockLost
from holdfast.locks.hold import Entry, Hold
from holdfast.runtime.io import Io

UNDECIDED = "the call that took it ended before its caller had it"


class Scope:
    """One `with`, and what it has entered.

    The interpreter holds the exit of a `with` until that `with` has ended. Nothing else does, so
    a dead reference to it says that the `with` is over, also if its exit never ran.
    """

    __slots__ = ("__weakref__", "entries", "exit", "grant")

    def __init__(self) -> None:
        self.exit: weakref.ref[Callable[..., Any]] | None = None
        self.grant: Any = None
        self.entries: list[Entry] = []

    @property
    def is_over(self) -> bool:
        """Whether the `with` has ended."""
        return self.exit is None or self.exit() is None


class Unsettled:
    """The record of one client."""

    def __init__(self, io: Io) -> None:
        self._io = io
        self._calls: dict[Entry, object] = {}
        self._seen: dict[Entry, float] = {}
        """When an entry was first found to be left by a call that has ended."""
        self.scopes: dict[Scope, None] = {}

    def begin(self, entry: Entry) -> None:
        """The running call takes this entry, or gives it back."""
        self._calls[entry] = self._io.running()

    def end(self, entry: Entry) -> None:
        """It is gone, or its withdrawal is in other hands."""
        self._calls.pop(entry, None)
        self._seen.pop(entry, None)

    def hand_out(self, entry: Entry) -> None:
        """The caller has this from here on. LockLost if the keeper has withdrawn it meanwhile.

        The entry leaves the record by the last bytecode at which an interrupt cannot come any more.
        The keeper takes it out in one step too, so that only one of them can have done so.
        """
        try:
            del self._calls[entry]
        except KeyError:
            raise LockLost(entry.claim.name, entry.token, UNDECIDED) from None

    def abandoned(self, patience: float) -> list[Entry]:
        """Take out what ended calls and ended `with` blocks have left.

        A call may have ended so recently that its caller is about to get its grant. So an entry is
        taken when it is found again after `patience` seconds.
        """
        found: list[Entry] = []
        now = self._io.now()
        for entry, call in self._calls.copy().items():
            if not self._io.has_ended(call):
                self._seen.pop(entry, None)
            elif now - self._seen.setdefault(entry, now) >= patience and self._calls.pop(entry, self) is not self:
                self._seen.pop(entry, None)
                found.append(entry)
        for scope in list(self.scopes):
            if scope.is_over:
                self.scopes.pop(scope, None)
                found.extend(entry for entry in scope.entries if entry.is_open)
        return found

    def left_of(self, hold: Hold) -> list[Entry]:
        """Take out those entries of a hold that ended calls and ended `with` blocks have left, at once.

        For the owner of the hold: it acquires again, so no call of its own is about to return.
        """
        if not self._calls and not self.scopes:
            return []
        mine = hold.entries
        found = [entry for entry, call in self._calls.copy().items() if entry in mine and self._io.has_ended(call)]
        found = [entry for entry in found if self._calls.pop(entry, self) is not self]
        over = [scope for scope in list(self.scopes) if scope.is_over]
        for scope in over:
            left = [entry for entry in scope.entries if entry.is_open]
            if mine.issuperset(left):
                self.scopes.pop(scope, None)
                found.extend(left)
        return found

    def any_seen(self) -> bool:
        """Whether something has to be looked at again soon."""
        return bool(self._seen)
