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
from holdfast.locks.hold import Entry
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
        self._leaving: dict[Entry, None] = {}
        """What the keeper has taken out, until its withdrawal is on record."""
        self.scopes: dict[Scope, None] = {}

    def begin(self, entry: Entry) -> object:
        """The running call takes this entry, or gives it back. The call that had it on record, if any."""
        former = self._calls.get(entry)
        self._calls[entry] = self._io.running()
        return former

    def leave_to(self, former: object, entry: Entry) -> None:
        """The running call has nothing to do with it after all: it is as before `begin`."""
        if former is None:
            self.end(entry)
        else:
            self._calls[entry] = former

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
        """Take out what ended calls and ended `with` blocks have left. The keeper says of each when it is `withdrawn`.

        A call may have ended so recently that its caller is about to get its grant. So an entry is
        taken when it is found again after `patience` seconds.
        """
        found: list[Entry] = []
        now = self._io.now()
        for entry, call in self._calls.copy().items():
            if not self._io.has_ended(call):
                self._seen.pop(entry, None)
            elif now - self._seen.setdefault(entry, now) >= patience:
                self._leaving[entry] = None
                if self._calls.pop(entry, self) is self:
                    del self._leaving[entry]
                    continue
                self._seen.pop(entry, None)
                found.append(entry)
        for scope in list(self.scopes):
            if scope.is_over:
                left = [entry for entry in scope.entries if entry.is_open]
                self._leaving.update(dict.fromkeys(left))
                self.scopes.pop(scope, None)
                found.extend(left)
        return found

    def withdrawn(self, entry: Entry) -> None:
        """The withdrawal of what was taken out is on record."""
        self._leaving.pop(entry, None)

    def left_by(self, owner: str) -> list[Entry]:
        """What ended calls and ended `with` blocks of this owner have left. The running call takes it over.

        For the owner itself: it acquires again, so no call of its own is about to return.
        """
        if not self._calls and not self.scopes and not self._leaving:
            return []
        found = [entry for entry, call in self._calls.copy().items() if self._io.has_ended(call)]
        found += self._leaving.copy()
        for scope in list(self.scopes):
            if scope.is_over:
                found += [entry for entry in scope.entries if entry.is_open]
        found = [entry for entry in found if entry.claim.owner == owner]
        for entry in found:
            self.begin(entry)
        return found

    def any_seen(self) -> bool:
        """Whether something has to be looked at again soon."""
        return bool(self._seen)
