"""Members that share keys between them, each key with one owner an epoch.

A member is a shared claim that lives with its session. Who belongs to the epoch is written in a
cell, whose version is the epoch's token: whoever notices that the members have changed writes
the next epoch, by compare-and-swap. Each member's keeper looks, twice a second in a small group.

A member answers from its last look, so two may think that they own a key while word gets
around. Their tokens differ, because an epoch has one owner a key: the fence refuses the one
with the older token as soon as the newer has written.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from holdfast.core.names import check_name
from holdfast.core.rendezvous import Seat, choose
from holdfast.core.table.commands import SessionOver
from holdfast.engines.engine import Verbs
from holdfast.errors import EngineFailure, InvalidRequest, NotHeld
from holdfast.locks.acquire import acquire, keep
from holdfast.locks.cell import MOST_BYTES, CellFront, encode
from holdfast.locks.client import Client
from holdfast.locks.hold import Entry, Hold
from holdfast.locks.keeper import Keeper, log
from holdfast.locks.release import give_up
from holdfast.locks.spec import Spec, check_awaited
from holdfast.locks.stay import Stay
from holdfast.locks.telling import Telling
from holdfast.model import Epoch, Granted, LockInfo
from holdfast.runtime.calls import new_lock

KEEP = 30 * 86_400.0
"""How long the last epoch of a group that nobody is in is kept."""
PERIOD = 0.5
"""How often each member of a small group looks: a dead one's keys have a new owner so soon after its ttl."""
LONGEST_PERIOD = 0.75
"""How often each member of a large one does. Any of them may be the only one left, so all have to look within the
second that is promised, with time for the look itself."""
LARGE = 200
"""From how many members on a group is large. Each look shows all of them: the engine's work is their square."""
LONGEST_MEMBER = 128


@dataclass(frozen=True, slots=True)
class Shares:
    """An epoch, with the claims behind its members."""

    token: int
    seats: tuple[Seat, ...]

    def shown(self) -> Epoch:
        """The epoch as people know it."""
        return Epoch(self.token, tuple(sorted({seat.member for seat in self.seats})))


NOBODY = Shares(0, ())


class PartitionFront:
    """One member's view of its group."""

    def __init__(
        self, client: Client, spec: Spec, member: str, on_change: Callable[[Epoch | None], object] | None
    ) -> None:
        if on_change is not None and not callable(on_change):
            raise InvalidRequest("on_change", on_change, "it is called, so it has to be a function")
        check_awaited(client.io, on_change=on_change)
        if len(check_name(member, "member").encode()) > LONGEST_MEMBER:
            raise InvalidRequest("member", member, f"a member's name has at most {LONGEST_MEMBER} bytes")
        self.client, self.member, self.on_change = client, member, on_change
        self.spec = replace(spec, note=member)
        self.cell = CellFront(client, "partition", spec.name, KEEP)
        self.forked()
        client.fronts.add(self)

    def forked(self) -> None:
        """Begin, or begin anew in a child: what our parent is a member of, we are not."""
        self.stay: Stay | None = None
        self._shares = NOBODY
        self._highest = 0
        """The highest token that was seen, of any epoch."""
        self._telling = Telling(self.client.io)
        self._lock = new_lock()
        """Over the stay and the epoch; never kept while anything is awaited."""

    # Coming and going

    async def join(self) -> None:
        """Become a member, counted in by an epoch. Nothing happens if we are one already.

        Whoever joins while another join is under way waits for that one.
        """
        stay = Stay(self.spec.name, PERIOD, self.look_again)
        taken: list[Entry] = []
        failed = True
        try:
            if await self._begin(stay):
                await self._enter(stay, taken)
            failed = False
        except BaseException:
            await self.client.io.shielded(self._withdraw(stay, taken))
            raise
        finally:
            with self._lock:
                stay.entered(failed)

    async def _begin(self, stay: Stay) -> bool:
        """Let this be our stay; False if another join made us a member."""
        while True:
            with self._lock:
                now = self.stay
                if now is None or not (now.entering or now.stands(self.client)):
                    self.stay, self._shares = stay, NOBODY
                    return True
                if not now.entering:
                    return False
                signal = self.client.io.signal()
                now.wait_for_it(signal)
            await self.client.io.wait(signal, None)
            if not now.failed:
                return False

    async def _enter(self, stay: Stay, taken: list[Entry]) -> None:
        """Take a place in the group, and be counted in."""
        entry = await acquire(self.client, self.spec, None, taken)
        hold = entry.held
        if not self.sit_down(stay, hold):
            # Somebody left for us meanwhile.
            await self._give_back(hold)
            return
        self.client.unsettled.end(entry)
        await self.look(stay, self.client.verbs, self.client.until)
        stay.errand.due = self.client.io.now() + stay.errand.every
        self.client.start_keeper().add_errand(stay.errand)

    async def _withdraw(self, stay: Stay, taken: list[Entry]) -> None:
        """End a stay whose join failed, also with a hold that was taken and is not its own yet."""
        mine = stay.hold
        await self._end(stay)
        for entry in taken:
            if entry.hold is not mine:
                await give_up(self.client, entry)

    async def leave(self) -> None:
        """Stop being a member; our keys go to the others at once."""
        self.client.io.check_caller()
        stay = self.stay
        if stay is not None:
            await self._end(stay)

    async def _end(self, stay: Stay) -> None:
        """End this stay, unless that was done by somebody else."""
        with self._lock:
            if self.stay is not stay:
                return
            hold = stay.hold
            if hold is not None:
                # Before the stay lets go of it: an interrupt leaves it to the keeper from here on.
                self.client.unsettled.begin(hold.entry)
            self.stay = None
        if self.client.closed:
            return
        self.client.start_keeper().drop_errand(stay.errand)
        if hold is not None and hold.reason is None:
            await self._give_back(hold)

    async def _give_back(self, hold: Hold) -> None:
        """Give a place in the group back, and count ourselves out."""
        await give_up(self.client, hold.entry)
        try:
            await self.agree(self.client.verbs, self.client.until)
        except EngineFailure:
            return  # whoever is still there sees by itself that we left

    def sit_down(self, stay: Stay, hold: Hold) -> bool:
        """Be a member by this hold from now on; False if that stay is over."""
        with self._lock:
            if self.stay is not stay:
                return False
            stay.hold = hold
        if self.on_change is not None:
            hold.when_lost(partial(self.tell, stay, None), self._telling.tell)
        return True

    # What a member knows, without asking anybody

    @property
    def hold(self) -> Hold | None:
        """What our place in the group is held by."""
        stay = self.stay
        return None if stay is None else stay.hold

    @property
    def shares(self) -> Shares | None:
        """The epoch that this member may act under; None while that is in doubt."""
        hold, shares = self.hold, self._shares
        if hold is None or not hold.valid or hold.session.in_danger:
            return None
        return shares if any(seat.claim == hold.claim.id for seat in shares.seats) else None

    def epoch(self) -> Epoch | None:
        """The epoch that this member may act under; None while that is in doubt."""
        shares = self.shares
        return None if shares is None else shares.shown()

    def members(self) -> tuple[str, ...]:
        """Who shares the keys, by the last look; nobody while that is in doubt."""
        epoch = self.epoch()
        return () if epoch is None else epoch.members

    def owner_of(self, key: str) -> str | None:
        """The member that owns a key, by the last look; None while that is in doubt."""
        shares = self.shares
        seat = None if shares is None else choose(shares.seats, check_key(key))
        return None if seat is None else seat.member

    def owned_under(self, key: str) -> Shares | None:
        """The epoch under which this member owns a key now, if it does."""
        hold, shares = self.hold, self.shares
        if hold is None or shares is None:
            return None
        seat = choose(shares.seats, check_key(key))
        return shares if seat is not None and seat.claim == hold.claim.id else None

    def owns(self, key: str) -> bool:
        """Whether this member owns a key now; False while that is in doubt."""
        check_key(key)
        return self.owned_under(key) is not None

    def token(self, key: str) -> int:
        """The token to show to the fence of what a key stands for; NotHeld unless this member owns the key now."""
        check_key(key)
        shares = self.owned_under(key)
        if shares is None:
            owner = self.owner_of(key)
            reason = "this member's own place is in doubt" if owner is None else f"{owner!r} owns it now"
            raise NotHeld(f"{self.spec.name}: {key}", self._shares.token, reason)
        return shares.token

    def mine(self, keys: Iterable[str]) -> Iterator[str]:
        """Those keys that this member owns, each looked at when it is asked for."""
        return (key for key in keys if self.owns(key))

    # Looking

    async def look(self, stay: Stay, verbs: Verbs, until: Callable[[], float]) -> None:
        """See who is here, act under that, and look again in time."""
        shares = await self.agree(verbs, until)
        stay.errand.every = period(len(shares.seats))
        self.turn(stay, shares)

    async def look_again(self, stay: Stay, keeper: Keeper) -> None:
        """The keeper's errand: come back if our own session ended, and see who is here."""
        if self.stay is not stay or self.client.closed:
            keeper.drop_errand(stay.errand)
            return
        if not stay.stands(self.client):
            await self.come_back(keeper, stay)
        await self.look(stay, keeper.verbs, keeper.before_beat)

    async def come_back(self, keeper: Keeper, stay: Stay) -> None:
        """Become a member again, under a new session."""
        client = self.client
        session = await keeper.session_now()
        claim = client.new_claim(session, self.spec, waits=False, owner="partition")
        sent = keeper.io.now()
        try:
            reply = await keeper.verbs.enter(claim, keeper.before_beat())
        except EngineFailure:
            keeper.withdraw(claim, unanswered=True)
            raise
        if isinstance(reply, SessionOver):
            client.session_ended(session, reply)
        if not isinstance(reply, Granted):
            return
        hold = keep(client, Entry(session, claim), reply, sent)
        if hold is not None and not self.sit_down(stay, hold):
            session.drop(hold)
            hold.released = True
            keeper.withdraw(claim, unanswered=False)

    async def agree(self, verbs: Verbs, until: Callable[[], float]) -> Shares:
        """See who is here, and write the next epoch if that is not what the cell says.

        The cell is read first: who is seen after that is newer than what it says, so that a
        slow look never puts back somebody who has gone.
        """
        kind, name = self.cell.kind, self.spec.name
        written = False
        while True:
            found = await verbs.cell_get(kind, name, until())
            seats = seats_of(await verbs.inspect(kind, name, until()))
            wanted = encode([[seat.claim, seat.member] for seat in seats])
            # An engine that lost data comes back with an epoch that is older than one that was seen. Fences refuse
            # its token, so a new one is written. Once per look: while the engine's clock is behind that does not help.
            older = found.version < self._highest
            if older and not written:
                log.warning("%s lost data: partition %r is back at epoch %d", self.client, name, found.version)
            if found.value == wanted and (not older or written):
                self._highest = max(self._highest, found.version)
                return Shares(found.version, seats)
            # A new epoch, or somebody else was faster: look again either way.
            await verbs.cell_set(kind, name, wanted, found.version, KEEP, until())
            written = True

    def turn(self, stay: Stay, shares: Shares) -> None:
        """Act under this epoch from now on, if that stay goes on."""
        with self._lock:
            if self.stay is not stay or shares.token == self._shares.token:
                return
            self._shares = shares
        if self.on_change is not None:
            self._telling.tell(partial(self.tell, stay, shares.shown()))

    def tell(self, stay: Stay, epoch: Epoch | None) -> object:
        """Tell the user of an epoch, or that our own place was lost, unless we have left since."""
        return None if self.on_change is None or self.stay is not stay else self.on_change(epoch)


def seats_of(info: LockInfo) -> tuple[Seat, ...]:
    """Who sits, in an order that everybody sees alike: by token, later ones after earlier ones.

    Those for whom the cell has no room any more stand by until somebody leaves.
    """
    holders = sorted(info.holders, key=lambda holder: (holder.token or 0, holder.claim))
    seats, room = [], MOST_BYTES - 2
    for holder in holders:
        room -= len(encode([holder.claim, holder.note]))
        if room < 0:
            break
        seats.append(Seat(holder.claim, holder.note))
    return tuple(seats)


def period(members: int) -> float:
    """How often each of so many members looks."""
    return PERIOD + (LONGEST_PERIOD - PERIOD) * min(1.0, members / LARGE)


def name_member(client: Client) -> str:
    """A name that nobody else has, for a member that was given none."""
    return check_name(f"{client.host[:64] or 'member'}-{client.pid}-{secrets.token_hex(3)}", "member")


def check_key(key: object) -> str:
    """A key is text."""
    if not isinstance(key, str):
        raise InvalidRequest("key", key, "a key is text")
    return key
