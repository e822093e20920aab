"""What running calls take and give back, so that a call that ends half-way leaves nothing behind.

An interrupt can end a call at any bytecode, also in its clean-up. So each entry is recorded
together with the call before the first byte is sent. It leaves the record when the caller has
its grant, or when the claim is gone or the keeper has its withdrawal. What an ended call has left
in the record is withdrawn by the keeper.
"""

from __future__ import annotations

import weakref
from threading import get_ident
from typing import Any, TypeAlias

from holdfast.errors import LockLost
from holdfast.locks.hold import Entry
from holdfast.runtime.io import Io

SECOND_LOOK = 0.3
"""How long after a call was seen to have ended what it left is withdrawn: its caller may be about to get it."""
UNDECIDED = "the call that took it ended before its caller had it"


class Scope:
    """One `with` or `async with`, and what it has entered.

    The interpreter holds the exit of a `with` until that `with` has ended; of an `async with`, then what the exit
    returns to be awaited. Nothing else does, so a dead reference to it says that the `with` is over, also if its
    exit never ran.
    """

    __slots__ = ("__weakref__", "entries", "exit", "grant")

    def __init__(self) -> None:
        self.exit: weakref.ref[Any] | None = None
        self.grant: Any = None
        self.entries: list[Entry] = []

    @property
    def is_over(self) -> bool:
        """Whether the `with` has ended."""
        return self.exit is None or self.exit() is None


Taker: TypeAlias = tuple[object, int]
"""Who has an entry on record: a call, and the thread that it runs in."""


class Unsettled:
    """The record of one client."""

    def __init__(self, io: Io) -> None:
        self._io = io
        self._calls: dict[Entry, Taker] = {}
        self._seen: dict[Entry, float] = {}
        """When an entry was first found to be left by a call that has ended."""
        self._leaving: dict[Entry, object] = {}
        """What was taken out, and the call that withdraws it (None: the keeper), until that is on record."""
        self.scopes: dict[Scope, None] = {}

    def begin(self, entry: Entry) -> Taker | None:
        """The running call takes this entry, or gives it back. The call that had it on record, if any."""
        former = self._calls.get(entry)
        self._calls[entry] = (self._io.running(), get_ident())
        return former

    def leave_to(self, former: Taker | None, entry: Entry) -> None:
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
        """The caller has this from here on. LockLost if it was withdrawn meanwhile.

        The entry leaves the record by the last bytecode at which an interrupt cannot come any more.
        What is withdrawn is taken out in one step too, so that only one of them can have done so.
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
        found = [entry for entry, call in self._leaving.copy().items() if self._io.has_ended(call)]
        for entry, (call, _) in self._calls.copy().items():
            if not self._io.has_ended(call):
                self._seen.pop(entry, None)
            elif self._left_since(entry) >= patience and self._take_out(entry, None):
                found.append(entry)
        for entry in [entry for entry in list(self._seen) if entry not in self._calls]:
            self._seen.pop(entry, None)  # its caller has it after all
        for scope in list(self.scopes):
            if scope.is_over:
                left = [entry for entry in scope.entries if entry.is_open]
                self._leaving.update(dict.fromkeys(left))
                self.scopes.pop(scope, None)
                found.extend(left)
        return found

    def left_by(self, owner: str, patience: float) -> list[Entry]:
        """What ended calls and ended `with` blocks of this owner have left. The running call takes it out.

        A call of this thread that has ended has left what is still on record: its caller goes on here. A
        call of another thread with the same owner may be about to return, as in `abandoned`.
        """
        if not self._calls and not self.scopes and not self._leaving:
            return []
        me, here = self._io.running(), get_ident()
        found = [entry for entry in self._leaving.copy() if entry.claim.owner == owner]
        for entry, (call, thread) in self._calls.copy().items():
            if entry.claim.owner != owner or not self._io.has_ended(call):
                continue
            if (thread == here or self._left_since(entry) >= patience) and self._take_out(entry, me):
                found.append(entry)
        for scope in list(self.scopes):
            if scope.is_over:
                left = [entry for entry in scope.entries if entry.is_open and entry.claim.owner == owner]
                self._leaving.update(dict.fromkeys(left, me))
                found.extend(left)
        return found

    def _left_since(self, entry: Entry) -> float:
        """For how many seconds an entry has been known to be left by a call that has ended."""
        now = self._io.now()
        return now - self._seen.setdefault(entry, now)

    def _take_out(self, entry: Entry, call: object) -> bool:
        """Take out an entry for this call to withdraw; False if its caller has it, or another call was faster."""
        try:
            # Neither line calls anything, so no interrupt comes between the two.
            del self._calls[entry]
            self._leaving[entry] = call
        except KeyError:
            return False
        self._seen.pop(entry, None)
        return True

    def withdrawn(self, entry: Entry) -> None:
        """The withdrawal of what was taken out is on record."""
        self._leaving.pop(entry, None)

    def claim_ids(self) -> set[str]:
        """The claims that running calls take or give back, or that ended calls have left."""
        return {entry.claim.id for entry in (*self._calls.copy(), *self._leaving.copy())}

    def any_seen(self) -> bool:
        """Whether something has to be looked at again soon."""
        return bool(self._seen)
