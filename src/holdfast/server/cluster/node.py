"""One server of the cluster: follows, stands for election when nobody leads, leads, and follows again."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import Any

from holdfast.core.deadline import beat_interval
from holdfast.core.table import Dictionary
from holdfast.engines.etcd import steps
from holdfast.engines.etcd.wire import LeaseGone
from holdfast.errors import EngineUnavailable
from holdfast.runtime import clock
from holdfast.server.cluster.beats import Beats
from holdfast.server.cluster.entries import Joiner
from holdfast.server.cluster.head import Head, read_head, write_head
from holdfast.server.cluster.membership import Member, Membership, unpacked
from holdfast.server.cluster.mirror import Mirror, load
from holdfast.server.cluster.status import ask_etcd, status
from holdfast.server.cluster.store import ClusterStore
from holdfast.server.cluster.wire import PAGE
from holdfast.server.codec import TooNew, Untrusted
from holdfast.server.service import Service
from holdfast.server.store import Deposed, StoreRefused

log = logging.getLogger("holdfast.server")

PAUSE = 0.2
"""Seconds between tries while etcd is out of reach."""
TAIL = 0.2
"""Seconds between two looks of a follower at the log. A watch would bring every batch by itself, and cost etcd and
the follower as much as the commit; whoever takes over has to read no more than came since its last look."""
LEADER = "leader"
"""What the one watch is called."""


class Node:
    """Brings the store and the service from one role to the next."""

    def __init__(self, store: ClusterStore, service: Service, member: Member) -> None:
        self.store, self.service, self.member = store, service, member
        self.keys, self.etcd = store.keys, store.etcd
        self.membership = Membership(self.etcd, self.keys, member, store.lease)
        self.beats = Beats(self.etcd, self.keys)
        self.leader: dict[str, Any] | None = None
        """What the leader says of itself."""
        self.mirror: Mirror | None = None
        self._watcher = self.etcd.watcher()
        self.etcd.wire.moved = self._watcher.restart
        self._loop = asyncio.get_running_loop()
        self._ending = False
        self._asked: asyncio.Task[bytes] | None = None
        """The last look for HF.CLUSTER: many who ask at once share one."""
        self._wake = asyncio.Event()
        self._over: asyncio.Future[None] = self._loop.create_future()
        """Done when this server leads no more."""
        self._renewing: asyncio.Task[None] | None = None
        self._tending: asyncio.Task[None] | None = None

    @property
    def role(self) -> str:
        """What this server is now."""
        return "leader" if self.store.leads else "candidate" if self.leader is None else "follower"

    @property
    def number(self) -> int:
        """The last entry of the log that is known here."""
        return self.store.number if self.mirror is None else self.mirror.number

    async def status(self) -> bytes:
        """What HF.CLUSTER answers."""
        if self._asked is None or self._asked.done():
            self._asked = self._loop.create_task(status(self))
        return await asyncio.shield(self._asked)

    async def run(self) -> None:
        """For as long as the server runs. StoreRefused if what is in etcd cannot be used."""
        while not self._ending:
            try:
                await self._join()
                term = await self._follow()
                await self._lead(term)
            except LeaseGone:
                if not self._ending:
                    log.warning("the lease ran out")
                self.membership.lose()
                self._forget()
            except EngineUnavailable as error:
                log.warning("etcd is of no use", extra={"problem": error.problem})
                self._forget()
                await asyncio.sleep(PAUSE)
            except TooNew as error:
                advice = "start a newer version of Holdfast"
                raise StoreRefused(self.store.address, str(error), advice) from error
            except Untrusted as error:
                advice = "restore a backup of etcd, and raise the tokens"
                raise StoreRefused(self.store.address, str(error), advice) from error

    def _forget(self) -> None:
        """What was known may not hold any more."""
        self.leader = self.mirror = None
        self.service.redirect(None)

    # Belonging

    async def _join(self) -> None:
        """Have a lease, and somebody who renews it."""
        if not self.membership.alive or not self.membership.lease:
            if self._renewing is not None:
                # It may be in the middle of renewing the former one.
                self._renewing.cancel()
                await asyncio.wait([self._renewing])
            await self.membership.begin()
        if self._renewing is None or self._renewing.done():
            self._renewing = self._loop.create_task(self._renew())

    async def _renew(self) -> None:
        """Renew the lease until it is lost; a leader is deposed then."""
        membership = self.membership
        while True:
            await asyncio.sleep(min(beat_interval(membership.granted), max(0.05, membership.deadline - clock.now())))
            try:
                await membership.renew(partial(self.beats.write, self.store.term) if self.store.leads else None)
            except LeaseGone:
                membership.lose()
            except EngineUnavailable as error:
                log.warning("the lease was not renewed", extra={"problem": error.problem})
            if self.store.leads and (self._tending is None or self._tending.done()):
                self._tending = self._loop.create_task(self._tend())
            if not membership.alive:
                membership.lose()
                self.deposed(Deposed(self.store.address, "its lease ran out"))
                self._wake.set()
                return

    async def _tend(self) -> None:
        """Ask etcd where its own leader is: a commit that goes elsewhere is sent on, and takes as much longer."""
        for at, found in enumerate(await ask_etcd(self)):
            if found["leader"] and found["healthy"]:
                self.etcd.wire.current = at
        await self.store.compact_now_and_then(self.beats.revision)

    # Following

    async def _follow(self) -> int:
        """Tail the log until nobody leads and this server is elected; the term that it leads in."""
        self.mirror, revision = await load(self.etcd.call, self.keys)
        self._watcher.watch(LEADER, self.keys.leader, revision + 1, self._hear)
        await self._look()
        while True:
            if not self.membership.lease:
                raise LeaseGone
            if self.leader is None:
                term = await self._campaign()
                if term:
                    return term
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), TAIL)
            self._wake.clear()
            await self._look()

    def _hear(self, _: object) -> None:
        """In the watch's thread: another one leads, or nobody does."""
        with suppress(RuntimeError):  # the loop is closed: nobody follows any more
            self._loop.call_soon_threadsafe(self._wake.set)

    async def _look(self) -> None:
        """See who leads, and take what the log has more. A leader whose time is over leads no more."""
        leader, beat = await self._tail()
        if self.beats.overdue(leader, beat) and await self.beats.end_term(leader, beat):
            log.info("the leader has not renewed its lease in time")
            leader = None
        self._meet(leader)

    async def _tail(self) -> tuple[Any | None, Any | None]:
        """Take what the log has more, or all of it if it does not go on from here; the leader's key, and its beat."""
        if self.mirror is not None:
            # What was not finished may have been cleared away by one who led meanwhile, with another in its place.
            self.mirror.forget_unfinished()
        while True:
            # First the head: of a later one we would not have the log yet, and read everything for nothing.
            kept = await self.etcd.call(steps.look(*self.keys.head_and_leader()))
            by_key = {kv.key: kv for kv in kept.message.kvs}
            head = by_key.get(self.keys.head)
            if head is None:
                self.mirror = None
            else:
                first = 1 if self.mirror is None else self.mirror.next
                found = (await self.etcd.call(steps.look(*self.keys.logs_from(first), limit=PAGE))).message
                if not self._follows(head, found):
                    self.mirror, _ = await load(self.etcd.call, self.keys)
                elif found.more:
                    continue
            return by_key.get(self.keys.leader), by_key.get(self.keys.beat)

    def _follows(self, head: Any, found: Any) -> bool:
        """Take entries of the log; False if they do not go on from here, and all has to be read again.

        That is so in a new cluster, whose head is not known here yet, and for one who was away for so long that
        what comes next was removed.
        """
        mirror = self.mirror
        if mirror is None:
            return False
        try:
            mirror.take((self.keys.number(kv.key), kv.value) for kv in found.kvs)
        except Untrusted as error:
            log.info("the log does not go on from here", extra={"problem": str(error)})
            return False
        mirror.settle(read_head(head.value), head.mod_revision)
        return bool(found.more) or mirror.number >= mirror.head.number

    def _meet(self, leader: Any | None) -> None:
        """Remember who leads: the leader's key. One of our own, that we lead by no more, is nobody's."""
        found = None if leader is None else unpacked(leader.value)
        self.leader = None if found is None or found["id"] == self.member.id else found
        self.service.redirect(None if self.leader is None else self.leader["advertise"])

    # Standing for election

    async def _campaign(self) -> int:
        """Try to lead: the term, or 0 if another was faster."""
        key, since = self.keys.leader, round(clock.time_of_day(), 3)
        own = self.member.packed(since=since)
        answer = await self.etcd.decide(
            [steps.absent(key)], [steps.put(key, own, self.membership.lease)], [steps.get(key)]
        )
        if answer.message.succeeded:
            self.leader = unpacked(own)
            return answer.revision
        found = steps.kvs(answer.message.responses[0])
        if found and found[0].lease == self.membership.lease:
            # An earlier try of the same call, or an earlier term of ours that was given up and not yet taken away.
            self.leader = unpacked(found[0].value)
            term: int = found[0].create_revision
            return term
        if found:
            self._meet(found[0])
            if self.leader is None:
                # A term of ours under a lease that is lost: nothing is answered by it any more.
                await self.beats.end_term(found[0], None)
        return 0

    async def _prepare(self, term: int) -> Mirror:
        """All that was ever answered, and nothing that was not."""
        # Nobody else writes now.
        await self._tail()
        mirror, self.mirror = self.mirror, None
        if mirror is None:
            first = Head(first_number=int(clock.time_of_day() * 1_000_000))
            revision = await write_head(self.etcd.call, self.keys, term, 0, first)
            if revision is None:
                raise LeaseGone
            return Mirror(Dictionary(first.first_number), first, revision, Joiner(0, 0), 0.0)
        await mirror.clear_unfinished(self.etcd.call, self.keys, steps.created_at(self.keys.leader, term))
        return mirror

    # Leading

    async def _lead(self, term: int) -> None:
        """Serve until deposed."""
        began = clock.now()
        self._watcher.unwatch(LEADER)
        mirror = await self._prepare(term)
        if not self.membership.lease or self._ending:
            raise LeaseGone
        self._over = self._loop.create_future()
        self.store.take_over(mirror, term, self.membership)
        self.service.begin()
        took = round((clock.now() - began) * 1000)
        self._tending = self._loop.create_task(self._tend())
        claims = len(self.service.table.rows)
        log.info("leading", extra={"term": term, "batch": mirror.number, "claims": claims, "took_ms": took})
        await self._over
        self._forget()

    def deposed(self, error: Deposed) -> None:
        """Lead no more: answer nobody, and forget what may not have been kept."""
        if not self.store.leads or error.past:
            return
        log.warning("deposed", extra={"problem": error.problem})
        self.leader = None
        self.store.give_up()
        self.service.retire()
        if not self._over.done():
            self._over.set_result(None)

    async def resign(self) -> None:
        """Leave in order: what hangs on the lease goes with it, and another one leads at once."""
        self._ending = True
        for task in (self._renewing, self._tending):
            if task is not None:
                task.cancel()
        self._watcher.unwatch_all()
        # Nothing is granted here any more: those who still ask are told to ask elsewhere.
        self.store.give_up()
        try:
            await self.membership.end()
        except EngineUnavailable as error:
            log.warning("the lease was not given back, it runs out by itself", extra={"problem": error.problem})

    def close(self) -> None:
        """Stop watching."""
        self._watcher.stop()
