"""A few things of one kind that calls borrow in turn: connections, or permission to send."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

from holdfast.runtime import clock
from holdfast.runtime.blocking import ThreadSignal
from holdfast.runtime.calls import Borrower, Call, has_ended, running_call, runs_here

T = TypeVar("T")

LOOK = 0.5
"""How often, in seconds, a call that waits for an item looks whether the borrower of one has ended."""
PATIENCE = 0.01
"""How long, in seconds, other calls may borrow an item before one that waits for it."""


class Loan:
    """One time that an item is lent, and the link to the next one.

    No lock protects an item. A signal handler may use the pool in the middle of a step of its own thread,
    and could not wait for that step to end. So a loan begins by one step of a dictionary: the first one that
    enters itself as `following` has the item.
    """

    __slots__ = ("borrower", "following", "over", "use")

    def __init__(self, borrower: Borrower | None, use: object) -> None:
        self.borrower = borrower
        """The call or task that borrows."""
        self.use = use
        self.over = False
        """Whether the item was given back."""
        self.following: dict[int, Loan] = {}

    @property
    def is_live(self) -> bool:
        """Whether it was not given back, by a borrower that still runs. A borrower of None counts as one."""
        return not self.over and not has_ended(self.borrower)


class PoolItem(Generic[T]):
    """One item of a pool. Only its borrower uses it."""

    __slots__ = ("_loan", "value")

    def __init__(self) -> None:
        self._loan = Loan(None, None)
        self._loan.over = True
        self.value: T | None = None
        """What it carries, such as a connection; None until a borrower has made one."""

    @property
    def loan(self) -> Loan:
        """The last loan."""
        loan = self._loan
        while loan.following:
            loan = loan.following[0]
        # Another thread may put an earlier one here just now: that one leads to the last one, too.
        self._loan = loan
        return loan

    @property
    def is_lent(self) -> bool:
        """Whether a borrower that still runs has it."""
        return self.loan.is_live

    @property
    def is_lent_here(self) -> bool:
        """Whether a call has it that runs in this thread: a signal handler asks in the middle of that call."""
        loan = self.loan
        return not loan.over and runs_here(loan.borrower)

    def lend(self, after: Loan, borrower: Borrower | None, use: object = None) -> bool:
        """Lend it after this loan, which is over or abandoned; False if another borrower was faster."""
        loan = Loan(borrower, use)
        return after.following.setdefault(0, loan) is loan

    def give(self) -> None:
        """Take it back."""
        loan = self.loan
        loan.over = True
        # What a task refers to must not live as long as the item.
        loan.borrower = None

    def keep_for(self, borrower: Borrower | None) -> None:
        """Let this be its borrower from now on; None: it is lent until it is given back."""
        self.loan.borrower = borrower


class CallTurn:
    """A turn that one call has at a time. A call that ended without giving it back has lost it.

    A call takes it for one `use`. When the call comes back for another use, an interrupt has ended
    the former one.
    """

    def __init__(self) -> None:
        self._item: PoolItem[None] = PoolItem()

    def take(self, use: object) -> bool:
        """Take the turn if it is free; never waits."""
        call, loan = running_call(), self._item.loan
        mine = call is not None and loan.borrower is call and loan.use is not use
        return (mine or not loan.is_live) and self._item.lend(loan, call, use)

    def give(self) -> None:
        """Give the turn back."""
        self._item.give()

    def is_taken(self) -> bool:
        """Whether a call that still runs has it."""
        return self._item.is_lent

    def is_taken_here(self) -> bool:
        """Whether a call of this thread has it: a signal handler asks in the middle of that call."""
        return self._item.is_lent_here


class Items(Generic[T]):
    """Lends at most `most` items, and never waits. A borrower that ended loses its item to the next one.

    The value of an item that was taken back this way is given to `discard`, because its state is not known,
    and the item is lent without a value. A borrower has one item at a time: one that asks again has been
    interrupted while it had the former one, and that is taken back as well.
    """

    def __init__(self, most: int, discard: Callable[[T], object]) -> None:
        self.items: list[PoolItem[T]] = [PoolItem() for _ in range(most)]
        self._discard = discard

    def borrow(self, borrower: Borrower | None) -> PoolItem[T] | None:
        """Borrow an item that is free or whose borrower has ended. One that carries a value is preferred."""
        for item in self.items:
            if item.value is not None and (loan := item.loan).over and item.lend(loan, borrower):
                return item
        for item in self.items:
            if (loan := item.loan).over and item.lend(loan, borrower):
                return item
        return self._abandoned(borrower)

    def _abandoned(self, borrower: Borrower | None) -> PoolItem[T] | None:
        """Borrow an item whose borrower has ended, or is the one that asks."""
        for item in self.items:
            loan = item.loan
            if loan.over:
                continue
            mine = borrower is not None and loan.borrower is borrower
            if (mine or not loan.is_live) and item.lend(loan, borrower):
                if item.value is not None:
                    # In this order: after an interrupt in between, what is discarded is discarded once more.
                    self._discard(item.value)
                    item.value = None
                return item
        return None

    def borrow_idle(self, wanted: Callable[[T], bool]) -> PoolItem[T] | None:
        """Borrow an item that is not lent and whose value is wanted; None if there is none now."""
        call = running_call()
        for item in self.items:
            loan, value = item.loan, item.value
            if loan.over and value is not None and wanted(value) and item.lend(loan, call):
                return item
        return None

    def is_lone(self, item: PoolItem[T]) -> bool:
        """Whether no borrower that still runs has another item that carries something."""
        for other in self.items:  # noqa: SIM110 - each request asks, and a generator takes seven times as long
            if other.value is not None and other is not item and other.is_lent:
                return False
        return True

    def idle_values(self) -> list[T]:
        """Take the values out of all items that are not lent, for the caller to close."""
        values: list[T] = []
        for item in self.items:
            loan = item.loan
            if loan.over and item.value is not None and item.lend(loan, running_call()):
                value, item.value = item.value, None
                item.give()
                if value is not None:
                    values.append(value)
        return values


class _Place:
    """A call's position in the queue for an item."""

    __slots__ = ("call", "signal", "since", "thread")

    def __init__(self, call: Call | None) -> None:
        self.call, self.thread = call, threading.get_ident()
        self.signal, self.since = ThreadSignal(), clock.now()

    @property
    def counts(self) -> bool:
        """Whether other calls wait behind it: not if its own call has ended."""
        return self.call is not None and self.call.cr_running


class CallPool(Items[T]):
    """Items that blocking calls wait for.

    Nothing here waits inside a lock, and `threading.Condition` is not used: an interrupt inside its
    Python code leaves its lock held for ever.
    """

    def __init__(self, most: int, discard: Callable[[T], object]) -> None:
        super().__init__(most, discard)
        self._waiting: list[_Place] = []

    def take(self, until: float) -> PoolItem[T] | None:
        """Borrow an item; None if there is none in time.

        None at once if calls of this thread have all of them: a signal handler asks, and they cannot go on before
        it has returned.
        """
        call = running_call()
        item = self.borrow(call) if not self._waiting or self._may_borrow(None) else None
        return item or self._wait(call, until)

    def _wait(self, call: Call | None, until: float) -> PoolItem[T] | None:
        place = _Place(call)
        self._waiting.append(place)
        try:
            while True:
                # Also after an item that was given back before the place was in the queue, which woke no call.
                item = self.borrow(call) if self._may_borrow(place) else None
                left = until - clock.now()
                if item is not None or left <= 0 or all(item.is_lent_here for item in self.items):
                    return item
                place.signal.wait(min(left, LOOK))
                place.signal.clear()
        finally:
            with suppress(ValueError):
                self._waiting.remove(place)
            self._wake_first()

    def _may_borrow(self, mine: _Place | None) -> bool:
        """Whether no other call has waited so long that the next item is for that one.

        A thread that gives an item back and asks again is faster than one that is woken. It goes first for a
        while, because that saves a change of threads, and not for ever. A signal handler has the position of the call
        that it came upon, which cannot go on before it.
        """
        thread = threading.get_ident()
        for place in self._waiting.copy():
            if place is mine or place.thread == thread:
                return True
            if place.counts:
                return clock.now() - place.since < PATIENCE
        return True

    def give(self, item: PoolItem[T]) -> None:
        """Take an item back, with the value that it carries now."""
        item.give()
        if self._waiting:
            self._wake_first()

    def is_waited_for(self) -> bool:
        """Whether a call waits for an item."""
        return bool(self._waiting)

    def _wake_first(self) -> None:
        """Wake the call that has waited longest."""
        woken: int | None = None
        for place in self._waiting.copy():
            if woken is None or place.thread == woken:
                place.signal.set()
                if place.counts:
                    woken = place.thread
