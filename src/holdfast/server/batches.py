"""Group commit: what arrives while a commit is under way goes into the next one.

Commands change the table in memory at once. Their replies, and the pushes that they cause, are gathered
and let out when the store has kept the changes; so is every read, because it may have seen them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from holdfast.core.table.changes import Change
from holdfast.runtime import clock
from holdfast.server import resp
from holdfast.server.store import Deposed, Store, StoreFull

if TYPE_CHECKING:
    from holdfast.server.connection import Connection
    from holdfast.server.tally import Tally

MOST_LAZY = 1_000
"""How many heartbeats may wait for a batch that is needed anyway."""

QUICK = 0.001
"""Seconds that a commit takes where it is worth while to make two of one, and where the loop may wait for it."""
LONGEST_COMPANY = 0.005
"""Seconds that a commit waits, at most, for those who were just answered."""
FEW = 64
"""How many parcels are so few that the loop waits for a quick commit: to change threads would cost more."""
FEW_CHANGES = 256
"""The same of changes: one parcel may tell of many."""
MUCH = 1 << 20
"""Bytes said in one turn of the loop after which others have theirs: to copy them takes about a millisecond."""

MOST_CHANGES = 1_000
"""Changes that wait for a commit, after which what makes more waits too: a commit of twice as many takes 20 ms."""

Parcel = tuple["Connection", bytes, int]
"""Something to be said on a connection, and how many replies are in it."""
_connection = itemgetter(0)
FULL = resp.error("HFFULL", "the disk is full: nothing of this was kept, try again later")


class Commit(NamedTuple):
    """What is kept together, or not at all, and who is told of it."""

    changes: list[Change]
    undo: list[Callable[[], None]]
    output: list[Parcel]
    observers: list[asyncio.Future[bool]]
    began: float


class Batches:
    """Gathers changes and output, and brings the first to the store before it lets the other out."""

    def __init__(
        self,
        store: Store,
        loop: asyncio.AbstractEventLoop,
        tally: Tally,
        end_turn: Callable[[], None],
        told: Callable[[int], None],
        refused: Callable[[StoreFull], None],
        broken: Callable[[Exception], None],
    ) -> None:
        self.store, self.loop, self.tally = store, loop, tally
        self._end_turn, self._told, self._refused, self._broken = end_turn, told, refused, broken
        self.changes: list[Change] = []
        """What was applied since the last commit began, in order."""
        self.undo: list[Callable[[], None]] = []
        """What to do beside the table if `changes` are not kept, in order."""
        self.cell_writes: Counter[str] = Counter()
        """Bytes of values of cells among `changes`, by user."""
        self.urgent = False
        """Whether somebody waits for `changes` to be kept; heartbeats alone do not."""
        self.output: list[Parcel] = []
        """What was said since the last commit began, in order."""
        self.size = self._size_before = self._size_under_way = 0
        """Bytes of `output`, those of them that were said before this turn, and those that wait for the disk."""
        self.observers: list[asyncio.Future[bool]] = []
        """Others who wait for this batch: True if it was kept."""
        self.idle = asyncio.Event()
        """Set while no commit is under way or about to begin."""
        self.idle.set()
        self.quick = True
        """Whether a commit takes no longer than it takes to carry out a few requests."""
        self._pace = 0.0
        """How long the last commits took, in seconds."""
        self._due = False
        self._begun: list[Callable[[], object]] = []
        """Who waits for the next commit to begin."""
        self._keeping: asyncio.Future[None] | None = None
        self._expected, self._patient_until = 0, 0.0
        """How much is said before the next commit begins, and until when it waits for that."""
        self._said = 0
        """How much had been said when it looked last."""
        self._company_until = 0.0
        """Until when it waits for company at all: somebody who says something in every turn holds up nobody."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def unsaid(self) -> int:
        """Bytes of all that is not let out yet."""
        return self.size + self._size_under_way

    @property
    def is_behind(self) -> bool:
        """Whether so many changes wait for a commit that what may make more of them waits too."""
        return len(self.changes) >= MOST_CHANGES

    def when_begun(self, callback: Callable[[], object]) -> None:
        """Call this when the changes that wait now are under way to the store, or are given up."""
        self._begun.append(callback)
        self.urgent = True
        self.gather()

    def _take_changes(self) -> list[Change]:
        changes, self.changes, self.urgent, self.cell_writes = self.changes, [], False, Counter()
        begun, self._begun = self._begun, []
        for callback in begun:
            self.loop.call_soon(callback)
        return changes

    @property
    def has_said_much(self) -> bool:
        """Whether so much was said in this turn that what may say much waits for the next."""
        return self.size - self._size_before >= MUCH

    def gather(self) -> None:
        """Something is about to happen: see to it after this turn of the loop."""
        if not self._due:
            self._due = True
            self.loop.call_soon(self._turn_over)

    def _turn_over(self) -> None:
        try:
            self._end_turn()
        finally:
            self._due, self._size_before = False, self.size
            self._go_on()

    def _go_on(self) -> None:
        """Begin the next commit, unless one is under way or it is better to wait for company."""
        if self._keeping is not None:
            return
        if self.urgent or len(self.changes) > MOST_LAZY:
            self.urgent = True
            self.idle.clear()
            if self.is_behind or not self._waits_for_company():
                self._begin()
            return
        self.idle.set()
        if self.output or self.observers:
            self.let_out(*self.take())

    def _waits_for_company(self) -> bool:
        """Whether to wait a little for those who were just answered: most ask again at once; one commit does for all.

        Otherwise those who came during a commit and those who were answered by it take turns for ever: twice as many
        commits, each half as large, or one large and one small.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        said, before = len(self.output), self._said
        self._said = said
        if said >= self._expected:
            return False
        if said > before and clock.now() < self._company_until:
            # A turn of the loop that brought somebody is worth another one.
            self.gather()
            return True
        left = self._patient_until - clock.now()
        if left <= 0:
            return False
        self._timer = self.loop.call_later(left, self._patience_over)
        return True

    def _patience_over(self) -> None:
        # Timers are coarse: this one may be early, by as much as it was for.
        self._patient_until = 0.0
        self._turn_over()

    def _begin(self) -> None:
        changes = self._take_changes()
        undo, self.undo = self.undo, []
        few = len(self.output) <= FEW and len(changes) <= FEW_CHANGES
        may_block = self.quick and (few or len(self.output) >= self._expected)
        self._size_under_way = self.size
        commit = Commit(changes, undo, *self.take(), clock.now())
        self._said = 0
        keeping: asyncio.Future[None]
        try:
            keeping = asyncio.ensure_future(self.store.keep(changes, may_block), loop=self.loop)
        except Exception as error:  # noqa: BLE001 as when it fails later
            keeping = self.loop.create_future()
            keeping.set_exception(error)
        self._keeping = keeping
        if keeping.done():
            # At once, and not after those whose requests have come meanwhile.
            self._over(commit, keeping)
        else:
            keeping.add_done_callback(partial(self._over, commit))

    def _over(self, commit: Commit, keeping: asyncio.Future[None]) -> None:
        self._keeping, self._size_under_way = None, 0
        if keeping.cancelled():
            self.idle.set()
            return  # as the loop ends
        try:
            self._settle(commit, keeping)
        except Exception as error:  # noqa: BLE001 whatever it was, nobody knows what is on disk
            self.idle.set()
            disappoint(commit.observers)
            self._broken(error)
            if isinstance(error, Deposed) and error.past:
                # What came since is of another term, and goes on.
                self.gather()
            return
        self._go_on()

    def _settle(self, commit: Commit, keeping: asyncio.Future[None]) -> None:
        try:
            keeping.result()
        except StoreFull as error:
            self.refuse(commit.output, commit.observers)
            undo = commit.undo + self.undo
            self.undo = []
            self._refused(error)
            for each in undo:
                each()
            return
        self._took(clock.now() - commit.began, len(commit.changes))
        self._expected = len(commit.output) + len(self.output)
        self.let_out(commit.output, commit.observers)
        # From now on: to let out very many answers takes as long as the patience lasts.
        now = clock.now()
        self._patient_until = now + min(self.store.patience, self._pace / 2)
        self._company_until = now + LONGEST_COMPANY

    def _took(self, seconds: float, changes: int) -> None:
        self.tally.commit(seconds, changes)
        self._pace += (seconds - self._pace) / 8
        self.quick = self._pace < QUICK

    def take(self) -> tuple[list[Parcel], list[asyncio.Future[bool]]]:
        """What has been gathered, and who else waits for it."""
        output, self.output = self.output, []
        self.size = self._size_before = 0
        observers, self.observers = self.observers, []
        return output, observers

    def let_out(self, output: list[Parcel], observers: list[asyncio.Future[bool]]) -> None:
        if not self.store.may_answer():
            disappoint(observers)
            self._broken(Deposed(self.store.address, "its lease has run out"))
            return
        if len(set(map(_connection, output))) < len(output):
            output = joined(output)
        for connection, data, replies in output:
            connection.let_out(data, replies)
        self._told(sum(len(data) for _, data, _ in output))
        for observer in observers:
            if not observer.done():
                observer.set_result(True)

    def refuse(self, output: list[Parcel], observers: list[asyncio.Future[bool]]) -> None:
        """Nothing of it was kept: those of this batch are told, and those who have seen its changes since."""
        since, also = self.take()
        for connection, data, replies in [*output, *since]:
            connection.let_out(data, replies, FULL)
        disappoint([*observers, *also])
        self._take_changes()

    def abandon(self) -> None:
        """Nothing of what was gathered is kept or let out: its connections are gone."""
        _, observers = self.take()
        disappoint(observers)
        self.undo = []
        self._take_changes()

    def kept(self) -> asyncio.Future[bool]:
        """Done when all that the table shows now is kept; False if it turned out that it is not."""
        observer: asyncio.Future[bool] = self.loop.create_future()
        self.observers.append(observer)
        self.gather()
        return observer

    async def finish(self) -> None:
        """Bring everything to the store that was gathered, heartbeats too, and let it out."""
        self._expected = 0
        self._end_turn()
        while self.changes or self.output or self._keeping is not None:
            self.urgent = self.urgent or bool(self.changes)
            self.gather()
            await asyncio.sleep(0)
            await self.idle.wait()


def joined(output: list[Parcel]) -> list[Parcel]:
    """The same with one parcel for each connection: each is a call of the system."""
    said: dict[Connection, list[bytes]] = {}
    owed: dict[Connection, int] = {}
    for connection, data, replies in output:
        if connection in said:
            said[connection].append(data)
            owed[connection] += replies
        else:
            said[connection], owed[connection] = [data], replies
    return [(connection, b"".join(parts), owed[connection]) for connection, parts in said.items()]


def disappoint(observers: list[asyncio.Future[bool]]) -> None:
    """What they waited for was not kept."""
    for observer in observers:
        if not observer.done():
            observer.set_result(False)
