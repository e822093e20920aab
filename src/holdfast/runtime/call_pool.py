"""A few things of one kind that blocking calls borrow in turn: connections, or permission to send."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from holdfast.runtime import clock
from holdfast.runtime.blocking import ThreadSignal
from holdfast.runtime.calls import Call, has_ended, running_call

T = TypeVar("T")

LOOK = 0.5
"""How often, in seconds, a call that waits for an item looks whether the borrower of one has ended."""


class CallTurn:
    """A turn that one call has at a time. A call that ended without giving it back has lost it.

    A call takes it for one `use`. When the call comes back for another use, an interrupt has ended
    the former one.
    """

    def __init__(self) -> None:
        self._taken = False
        self._call: Call | None = None
        self._use: object = None
        self._lock = threading.Lock()

    def take(self, use: object) -> bool:
        """Take the turn if it is free; never waits."""
        call = running_call()
        with self._lock:
            mine = call is not None and self._call is call and self._use is not use
            if self._taken and not mine and not has_ended(self._call):
                return False
            self._call, self._use = call, use
            self._taken = True
            return True

    def give(self) -> None:
        """Give the turn back."""
        self._call = self._use = None
        self._taken = False

    def is_taken(self) -> bool:
        """Whether a call that still runs has it."""
        return self._taken and not has_ended(self._call)


class PoolItem(Generic[T]):
    """One item of a pool. Only its borrower uses it."""

    __slots__ = ("call", "taken", "value")

    def __init__(self) -> None:
        self.taken = False
        self.call: Call | None = None
        """The call that borrowed it."""
        self.value: T | None = None
        """What it carries, such as a connection; None until a borrower has made one."""


class CallPool(Generic[T]):
    """Lends at most `most` items. A call that ended without giving its item back loses it to the next one.

    The value of an item that was taken back this way is given to `discard`, since nobody knows what
    state it is in, and the item is lent without a value. A call borrows one item at a time: one that
    asks again has been interrupted while it had the former one, and that is taken back as well.

    Nothing here waits inside a lock, and `threading.Condition` is not used: an interrupt inside its
    Python code leaves its lock held for ever.
    """

    def __init__(self, most: int, discard: Callable[[T], object]) -> None:
        self.items: list[PoolItem[T]] = [PoolItem() for _ in range(most)]
        self._discard = discard
        self._lock = threading.Lock()
        self._waiting: list[ThreadSignal] = []

    def take(self, until: float) -> PoolItem[T] | None:
        """Borrow an item; None if there is none in time. One that carries a value is preferred."""
        call = running_call()
        item = self._free(call)
        if item is not None:
            return item
        signal = ThreadSignal()
        while True:
            self._waiting.append(signal)
            # An item that was given back before the signal was in place wakes nobody.
            item = self._free(call)
            if item is None:
                left = until - clock.now()
                if left <= 0:
                    self._wait_no_more(signal)
                    return None
                signal.wait(min(left, LOOK))
                signal.clear()
                item = self._free(call)
            self._wait_no_more(signal)
            if item is not None:
                return item

    def take_idle(self, wanted: Callable[[T], bool]) -> PoolItem[T] | None:
        """Borrow an item that is not lent and whose value is wanted; None if there is none now."""
        call = running_call()
        with self._lock:
            for item in self.items:
                if not item.taken and item.value is not None and wanted(item.value):
                    item.call = call
                    item.taken = True
                    return item
        return None

    def give(self, item: PoolItem[T]) -> None:
        """Take an item back, with the value that it carries now."""
        item.call = None
        item.taken = False
        if self._waiting:
            self._wake_next()

    def is_waited_for(self) -> bool:
        """Whether a call waits for an item."""
        return bool(self._waiting)

    def in_use(self) -> int:
        """How many items are lent now."""
        return sum(item.taken for item in self.items)

    def idle_values(self) -> list[T]:
        """Take the values out of all items that are not lent, for the caller to close."""
        values: list[T] = []
        with self._lock:
            for item in self.items:
                if not item.taken and item.value is not None:
                    values.append(item.value)
                    item.value = None
        return values

    def _free(self, call: Call | None) -> PoolItem[T] | None:
        """Borrow an item that is free or whose borrower has ended."""
        found: PoolItem[T] | None = None
        with self._lock:
            for item in self.items:
                if not item.taken and (found is None or (found.value is None and item.value is not None)):
                    found = item
                    if item.value is not None:
                        break
            if found is None:
                found = self._abandoned(call)
            if found is None:
                return None
            abandoned = found.taken
            # An interrupt between these two leaves a free item with a call, which the next borrower replaces.
            found.call = call
            found.taken = True
        if abandoned and found.value is not None:
            value, found.value = found.value, None
            self._discard(value)
        return found

    def _abandoned(self, call: Call | None) -> PoolItem[T] | None:
        """An item whose borrower has ended, or has come back for another one."""
        for item in self.items:
            if has_ended(item.call) or (call is not None and item.call is call):
                return item
        return None

    def _wake_next(self) -> None:
        """Wake the call that has waited longest."""
        try:
            self._waiting.pop(0).set()
        except IndexError:
            return  # it was served meanwhile

    def _wait_no_more(self, signal: ThreadSignal) -> None:
        """Leave the queue; a wake-up that came too late goes to the next one."""
        try:
            self._waiting.remove(signal)
        except ValueError:
            if any(not item.taken for item in self.items) and self._waiting:
                self._wake_next()
