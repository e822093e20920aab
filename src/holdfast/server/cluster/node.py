"""One server of the cluster: follows, stands for election when nobody leads, leads, and follows again."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from holdfast.core.deadline import beat_interval
from holdfast.core.table import Dictionary
from holdfast.engines.etcd import steps
from holdfast.engines.etcd.keys import end_of
from holdfast.engines.etcd.watcher import DELETED, Watcher
from holdfast.engines.etcd.wire import LeaseGone
from holdfast.errors import EngineUnavailable
from holdfast.runtime import clock
from holdfast.server.cluster.entries import Joiner
from holdfast.server.cluster.membership import Member, Membership, unpacked
from holdfast.server.cluster.mirror import Mirror, load
from holdfast.server.cluster.snapshot import Head, read_head
from holdfast.server.cluster.status import status
from holdfast.server.cluster.store import ClusterStore
from holdfast.server.cluster.wire import read, read_all
from holdfast.server.codec import TooNew, Untrusted
from holdfast.server.service import Service
from holdfast.server.store import Deposed, StoreRefused

log = logging.getLogger("holdfast.server")

PAUSE = 0.2
"""Seconds between tries while etcd is out of reach."""
GATHER = 0.02
"""Seconds for which entries of the log gather before a follower takes them: one turn for many."""


class Node:
    """Brings the store and the service from one role to the next."""

    def __init__(self, store: ClusterStore, service: Service, member: Member) -> None:
        self.store, self.service, self.member = store, service, member
        self.keys, self.etcd = store.keys, store.etcd
        self.membership = Membership(self.etcd, self.keys, member, store.lease)
        self.leader: dict[str, Any] | None = None
        """What the leader says of itself."""
        self.mirror: Mirror | None = None
        self._watcher = Watcher(self.etcd.wire)
        self.etcd.wire.moved = self._watcher.restart
        self._loop = asyncio.get_running_loop()
        self._news: list[Any] = []
        """Events that the watch has brought, not taken yet."""
        self._missed = False
        self._watches = 0
        """How many there were: what an earlier one brings comes too late."""
        self._wake = asyncio.Event()
        self._over: asyncio.Future[None] = self._loop.create_future()
        """Done when this server leads no more."""
        self._renewing: asyncio.Task[None] | None = None

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
        return await status(self)

    async def run(self) -> None:
        """For as long as the server runs. StoreRefused if what is in etcd cannot be used."""
        while True:
            try:
                await self._join()
                term = await self._follow()
                await self._lead(term)
            except LeaseGone:
                log.warning("the lease ran out")
                self._forget()
            except EngineUnavailable as error:
                log.warning("etcd is out of reach", extra={"problem": error.problem})
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
            await self.membership.begin()
        if self._renewing is None or self._renewing.done():
            self._renewing = self._loop.create_task(self._renew())

    async def _renew(self) -> None:
        """Renew the lease until it is lost; a leader is deposed then."""
        membership = self.membership
        while True:
            await asyncio.sleep(min(beat_interval(membership.granted), max(0.05, membership.deadline - clock.now())))
            try:
                await membership.renew()
            except LeaseGone:
                membership.deadline = 0.0
            except EngineUnavailable as error:
                log.warning("the lease was not renewed", extra={"problem": error.problem})
            if not membership.alive:
                membership.lease = 0
                self.deposed(Deposed(self.store.address, "its lease ran out"))
                self._wake.set()
                return

    # Following

    async def _follow(self) -> int:
        """Tail the log until nobody leads and this server is elected; the term that it leads in."""
        await self._load()
        while True:
            if not self.membership.lease:
                raise LeaseGone
            if self.leader is None:
                term = await self._campaign()
                if term:
                    return term
            await self._wake.wait()
            await asyncio.sleep(GATHER if self.leader is not None and not self._leader_gone() else 0)
            self._wake.clear()
            news, self._news = self._news, []
            if self._missed:
                await self._load()
            else:
                self._take(news)

    def _leader_gone(self) -> bool:
        return any(event.type == DELETED and event.kv.key == self.keys.leader for event in self._news)

    async def _load(self) -> None:
        """Read everything, and watch what comes after that."""
        self._look_away()
        self.mirror, revision = await load(self.etcd.call, self.keys)
        live, hear = self.keys.live, partial(self._hear, self._watches)
        self._watcher.watch("live", live, revision + 1, hear, end=end_of(live))
        kv, _ = await read(self.etcd.call, self.keys.leader)
        self._meet(kv)

    def _look_away(self) -> None:
        """End the watch; what it has brought, or still brings, does not count."""
        self._watcher.unwatch("live")
        self._watches += 1
        self._missed, self._news = False, []

    def _hear(self, watch: int, events: Sequence[Any] | None) -> None:
        """In the watch's thread."""
        with suppress(RuntimeError):  # the loop is closed: nobody follows any more
            self._loop.call_soon_threadsafe(self._gather, watch, None if events is None else list(events))

    def _gather(self, watch: int, events: list[Any] | None) -> None:
        if watch != self._watches:
            return
        if events is None:
            self._missed = True
        else:
            self._news += events
        self._wake.set()

    def _take(self, events: list[Any]) -> None:
        """What is new: entries of the log, and who leads."""
        for event in events:
            key = event.kv.key
            if key == self.keys.leader:
                self._meet(None if event.type == DELETED else event.kv)
            elif event.type == DELETED:
                continue  # a snapshot stands for it, or it was never finished
            elif not self._missed:
                self._missed = not self._follows(self.keys.number(key), event.kv.value)
        if self._missed:
            self._wake.set()

    def _follows(self, number: int, entry: bytes) -> bool:
        """Take an entry of the log; False if it does not go on from here, and all has to be read again.

        That is so in a new cluster, whose head is not known here yet, and when a batch was begun and not finished.
        """
        if self.mirror is None:
            return False
        try:
            self.mirror.take(number, entry)
        except Untrusted as error:
            log.info("the log does not go on from here", extra={"problem": str(error)})
            return False
        return True

    def _meet(self, leader: Any | None) -> None:
        """Remember who leads: the leader's key. One of our own, that we lead by no more, is nobody's."""
        if leader is not None and leader.lease == self.membership.lease:
            leader = None
        self.leader = None if leader is None else unpacked(leader.value)
        self.service.redirect(None if self.leader is None else self.leader["advertise"])

    # Standing for election

    async def _campaign(self) -> int:
        """Try to lead: the term, or 0 if another was faster."""
        key, since = self.keys.leader, round(time.time(), 3)
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
        return 0

    async def _prepare(self, term: int) -> Mirror:
        """All that was ever answered, and nothing that was not."""
        mine = steps.created_at(self.keys.leader, term)
        head, _ = await read(self.etcd.call, self.keys.head)
        if head is None:
            first = Head(first_number=int(time.time() * 1_000_000))
            await self.etcd.decide([mine, steps.absent(self.keys.head)], [steps.put(self.keys.head, first.packed())])
            mirror: Mirror | None = Mirror(Dictionary(first.first_number), first, Joiner(0, 0), 0.0, 0)
        else:
            mirror = await self._catch_up(read_head(head.value))
            if mirror is None:
                mirror, _ = await load(self.etcd.call, self.keys)
        assert mirror is not None, "there is a head"
        orphans = [
            steps.delete_range(self.keys.snapshots, self.keys.snapshot(mirror.head.number)),
            steps.delete_range(end_of(self.keys.snapshot(mirror.head.number)), end_of(self.keys.snapshots)),
        ]
        answer = await self.etcd.decide([mine], [mirror.without_unfinished(self.keys), *orphans])
        if not answer.message.succeeded:
            raise LeaseGone
        return mirror

    async def _catch_up(self, head: Head) -> Mirror | None:
        """The mirror with the rest of the log: nobody else writes now. None if it is too far behind."""
        mirror = self.mirror
        if mirror is None or head.number > mirror.number:
            return None
        async for kv in read_all(self.etcd.call, *self.keys.logs_from(mirror.next)):
            if not self._follows(self.keys.number(kv.key), kv.value):
                return None
        mirror.head = head
        return mirror

    # Leading

    async def _lead(self, term: int) -> None:
        """Serve until deposed."""
        began = clock.now()
        self._look_away()
        mirror, self.mirror = await self._prepare(term), None
        self._over = self._loop.create_future()
        self.store.take_over(mirror, term, self.membership)
        self.service.begin()
        took = round((clock.now() - began) * 1000)
        claims = len(self.service.table.rows)
        log.info("leading", extra={"term": term, "batch": mirror.number, "claims": claims, "took_ms": took})
        await self._over
        self._forget()

    def deposed(self, error: Deposed) -> None:
        """Lead no more: answer nobody, and forget what may not have been kept."""
        if not self.store.leads:
            return
        log.warning("deposed", extra={"problem": error.problem})
        self.leader = None
        self.store.give_up()
        self.service.retire()
        if not self._over.done():
            self._over.set_result(None)

    async def resign(self) -> None:
        """Leave in order: what hangs on the lease goes with it, and another one leads at once."""
        if self._renewing is not None:
            self._renewing.cancel()
        self._watcher.unwatch_all()
        try:
            await self.membership.end()
        except EngineUnavailable as error:
            log.warning("the lease was not given back, it runs out by itself", extra={"problem": error.problem})

    def close(self) -> None:
        """Stop watching."""
        self._watcher.stop()
