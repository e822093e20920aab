"""Members that share keys between them, each key with one owner an epoch.

A member is a shared claim that lives with its session. Who belongs to the epoch is written in a
cell, whose version is the epoch's token: whoever notices that the members have changed writes
the next epoch, by compare-and-swap. Each member's keeper looks twice a second.

A member answers from its last look, so two may think that they own a key while word gets
around. Their tokens differ, because an epoch has one owner a key: the fence refuses the one
with the older token as soon as the newer has written.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from holdfast.core.names import check_name
from holdfast.core.rendezvous import Seat, choose
from holdfast.core.table.commands import SessionOver
from holdfast.engines.engine import Verbs
from holdfast.errors import EngineUnavailable, InvalidRequest, NotHeld
from holdfast.locks.acquire import acquire, keep
from holdfast.locks.cell import MOST_BYTES, CellFront, encode
from holdfast.locks.client import Client
from holdfast.locks.errand import Errand
from holdfast.locks.hold import Hold
from holdfast.locks.keeper import Keeper
from holdfast.locks.release import release_quietly
from holdfast.locks.spec import Spec
from holdfast.model import Epoch, Granted, LockInfo

KEEP = 30 * 86_400.0
"""How long the last epoch of a group that nobody is in is kept."""
PERIOD = 0.5
"""How often each member looks: a dead one's keys have a new owner so soon after its ttl."""
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
        if len(check_name(member, "member").encode()) > LONGEST_MEMBER:
            raise InvalidRequest("member", member, f"a member's name has at most {LONGEST_MEMBER} bytes")
        self.client, self.member, self.on_change = client, member, on_change
        self.spec = replace(spec, note=member)
        self.cell = CellFront(client, "partition", spec.name, KEEP)
        self.hold: Hold | None = None
        self.joined = False
        self._shares = NOBODY
        self._lock = threading.Lock()
        self._errand = Errand(f"the look at partition {spec.name!r}", PERIOD, self.look_again)

    # Coming and going

    async def join(self) -> None:
        """Become a member, counted in by an epoch. Nothing happens if we are one already."""
        if self.joined:
            return
        self.joined = True
        taken: list[Hold] = []
        try:
            hold = await acquire(self.client, self.spec, None, taken)
            if not self.sit_down(hold):
                # Somebody left for us meanwhile.
                await release_quietly(self.client, hold)
                return
            self.turn(await self.agree(self.client.verbs, self.client.until))
        except BaseException:
            await self.client.io.shielded(self._withdraw(taken))
            raise
        self._errand.due = self.client.io.now() + PERIOD
        self.client.start_keeper().add_errand(self._errand)

    async def _withdraw(self, taken: list[Hold]) -> None:
        """Leave, also with a hold that was taken and is not ours yet."""
        mine = self.hold
        await self.leave()
        for hold in taken:
            if hold is not mine:
                await release_quietly(self.client, hold)

    async def leave(self) -> None:
        """Stop being a member; our keys go to the others at once."""
        with self._lock:
            hold, self.hold, self.joined = self.hold, None, False
        if self.client.closed:
            return
        self.client.start_keeper().drop_errand(self._errand)
        if hold is None or hold.reason is not None:
            return
        await release_quietly(self.client, hold)
        try:
            await self.agree(self.client.verbs, self.client.until)
        except EngineUnavailable:
            return  # whoever is still there sees by itself that we left

    def sit_down(self, hold: Hold) -> bool:
        """Be a member by this hold from now on; False if we have left meanwhile."""
        with self._lock:
            if not self.joined:
                return False
            self.hold = hold
        hold.when_lost(self.tell_loss)
        return True

    # What a member knows, without asking anybody

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

    async def look_again(self, keeper: Keeper) -> None:
        """The keeper's errand: come back if our own session ended, and see who is here."""
        hold = self.hold
        if not self.joined or self.client.closed:
            return
        if hold is None or not hold.valid:
            await self.come_back(keeper)
        self.turn(await self.agree(keeper.verbs, keeper.before_beat))

    async def come_back(self, keeper: Keeper) -> None:
        """Become a member again, under a new session."""
        client = self.client
        session = await keeper.session_now()
        claim = client.new_claim(session, self.spec, waits=False, owner="partition")
        sent = keeper.io.now()
        try:
            reply = await keeper.verbs.enter(claim, keeper.before_beat())
        except EngineUnavailable:
            keeper.withdraw(claim, unanswered=True)
            raise
        if isinstance(reply, SessionOver):
            client.session_ended(session)
        if not isinstance(reply, Granted):
            return
        hold = keep(client, session, claim, reply, sent)
        if hold is not None and not self.sit_down(hold):
            session.drop(hold)
            hold.released = True
            keeper.withdraw(claim, unanswered=False)

    async def agree(self, verbs: Verbs, until: Callable[[], float]) -> Shares:
        """See who is here, and write the next epoch if that is not what the cell says.

        The cell is read first: who is seen after that is newer than what it says, so that a
        slow look never puts back somebody who has gone.
        """
        kind, name = self.cell.kind, self.spec.name
        while True:
            found = await verbs.cell_get(kind, name, until())
            seats = seats_of(await verbs.inspect(kind, name, until()))
            wanted = encode([[seat.claim, seat.member] for seat in seats])
            if found.value == wanted:
                return Shares(found.version, seats)
            # A new epoch, or somebody else was faster: look again either way.
            await verbs.cell_set(kind, name, wanted, found.version, KEEP, until())

    def turn(self, shares: Shares) -> None:
        """Act under this epoch from now on."""
        with self._lock:
            if shares.token == self._shares.token:
                return
            self._shares = shares
            on_change = self.on_change if self.joined else None
        if on_change is not None:
            self.client.io.call_back(on_change, shares.shown())

    def tell_loss(self) -> object:
        """Our own place was lost: we own nothing until we are back."""
        return None if self.on_change is None or not self.joined else self.on_change(None)


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


def name_member(client: Client) -> str:
    """A name that nobody else has, for a member that was given none."""
    return check_name(f"{client.host[:64] or 'member'}-{client.pid}-{secrets.token_hex(3)}", "member")


def check_key(key: object) -> str:
    """A key is text."""
    if not isinstance(key, str):
        raise InvalidRequest("key", key, "a key is text")
    return key
