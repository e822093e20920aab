"""`--store etcd://a,b,c`: the table of several servers, of which one leads, as a log in etcd.

What `keep` has returned for, a majority of etcd has. Only the leader calls it, and a leader that was deposed
without knowing it is refused by etcd itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from holdfast.core.table import Dictionary
from holdfast.core.table.changes import Change
from holdfast.core.urls import Url
from holdfast.engines.etcd import steps
from holdfast.engines.etcd.address import OPTIONS, parse_address
from holdfast.errors import EngineUnavailable, InvalidRequest
from holdfast.runtime import clock
from holdfast.runtime.blocking import run
from holdfast.server import codec, recovery
from holdfast.server.cluster import entries
from holdfast.server.cluster.head import Head
from holdfast.server.cluster.keys import DEFAULT_NAME, Keys
from holdfast.server.cluster.membership import Membership
from holdfast.server.cluster.mirror import Mirror, load
from holdfast.server.cluster.snapshot import Snapshot, copied
from holdfast.server.cluster.wire import Etcd, read
from holdfast.server.options import whole
from holdfast.server.store import Deposed, Figures, StoreFull

log = logging.getLogger("holdfast.server")

SHORTEST_LEASE = 5
LEASES_A_TTL = 3
LOG_KIB = 1024
"""How much log there is before a snapshot is made; the changes in it are some six times as long."""
SNAPSHOT_AGAIN = 10.0
"""Seconds before a snapshot is tried again that could not be made."""
COMPACT_EVERY = 600.0
"""Seconds after which history is compacted where no snapshot is made: every beat of the leader is history."""
FULL_FOR = 1.0
"""Seconds before a full etcd is asked again to take something new."""


class ClusterStore:
    """The table in etcd, for the server that leads."""

    options = OPTIONS | {"lease", "log_kib", "compact", "name"}
    patience = 0.002
    """Every commit is work for three nodes of etcd: as much as a hundred requests are for this server."""

    def __init__(
        self, etcd: Etcd, keys: Keys, *, lease: int = SHORTEST_LEASE, log_kib: int = LOG_KIB, compact: bool = True
    ) -> None:
        self.etcd, self.keys, self.lease = etcd, keys, lease
        self.address = etcd.address.shown
        self.shortest_ttl = float(lease * LEASES_A_TTL)
        self.membership: Membership | None = None
        self._log_most, self._compacts = log_kib << 10, compact
        self.term = 0
        """The create revision of our leader key; 0 while another leads."""
        self._mirror: Mirror | None = None
        """The table that the next `load` gives, made by tailing the log."""
        self.table: Dictionary | None = None
        self.head, self._head_revision = Head(0), 0
        self._number = self._chain = self._log_bytes = 0
        self._at, self._offset = 0.0, float("-inf")
        self._owed: list[codec.Record] = []
        """What the takeover gave sessions and counters, to be kept with the first batch."""
        self._full_until = self._snapshot_after = 0.0
        self._snapshot: asyncio.Task[None] | None = None
        self._compact_to, self._compacted_at = 0, 0.0
        self._batches = self._changes = self._bytes = 0
        self._seconds = self.recent = 0.0
        """What commits took: all together, and of late on average."""

    @classmethod
    def from_url(cls, url: Url) -> ClusterStore:
        """The store of `etcd://a,b,c?lease=5&name=holdfast`."""
        url.check_options(cls.options)
        lease = whole(url, "lease", SHORTEST_LEASE)
        # Shorter ones are for tests: an election of etcd takes longer than that.
        shortest = int(os.environ.get("HOLDFAST_SHORTEST_LEASE", SHORTEST_LEASE))
        if lease < shortest:
            raise InvalidRequest("url option lease", lease, f"it is at least {shortest} s, to outlast etcd's elections")
        compact = "compact" not in url.options or url.flag("compact")
        keys = Keys(url.options.get("name", DEFAULT_NAME))
        return cls(Etcd(parse_address(url)), keys, lease=lease, log_kib=whole(url, "log_kib", LOG_KIB), compact=compact)

    # Leading

    @property
    def leads(self) -> bool:
        """Whether this server leads, as far as it knows."""
        return self.term != 0

    def mine(self) -> Any:
        """What every write compares: the leader key is there, and is the one that we made."""
        return steps.created_at(self.keys.leader, self.term)

    def take_over(self, mirror: Mirror, term: int, membership: Membership) -> None:
        """Lead from now on, with the table of this mirror."""
        self._mirror, self.term, self.membership = mirror, term, membership
        # Time went on elsewhere: what was counted here in an earlier term does not count.
        self._offset = float("-inf")

    def give_up(self) -> None:
        """Another one leads, or may lead."""
        self.term, self.table, self._mirror = 0, None, None
        if self._snapshot is not None:
            self._snapshot.cancel()
            self._snapshot = None

    def may_answer(self) -> bool:
        """Whether nobody else can lead yet, on our own clock. Followers answer too: that another leads."""
        return not self.term or (self.membership is not None and self.membership.alive)

    # The start

    def load(self) -> Dictionary:
        """The table as of the last batch that was kept."""
        mirror, self._mirror = self._mirror, None
        if mirror is None:
            # Something was not kept: there is no other copy of what was before.
            mirror = run(self._load_again())
        table = self.table = mirror.table
        self.head, self._head_revision, self._log_bytes = mirror.head, mirror.head_revision, mirror.log_bytes
        self._number, self._chain, self._at = mirror.number, mirror.chain, mirror.at
        # Time went on since the last batch came, and never goes back.
        self._offset = max(self._offset, mirror.at - mirror.heard)
        # A backup of etcd may have been restored, and others have had tokens since: the time of day is ahead of them.
        raised = recovery.raise_counters(table, int(clock.time_of_day() * 1_000_000))
        self._owed = codec.records([*raised, *recovery.grace(table, self.now(), self._at)])
        return table

    async def _load_again(self) -> Mirror:
        call = self.etcd.call_blocking
        if not self.term:
            raise Deposed(self.address, "that term is over", past=True)
        try:
            mirror, _ = await load(call, self.keys, threads=False)
            assert mirror is not None, "whoever leads has written a head"
            await mirror.clear_unfinished(call, self.keys, self.mine())
        except EngineUnavailable as error:
            raise Deposed(self.address, f"etcd is out of reach ({error.problem})") from error
        return mirror

    def now(self) -> float:
        """The clock of the table."""
        return clock.now() + self._offset if self.term else clock.now()

    # Keeping

    def keep(self, changes: Sequence[Change], may_block: bool = False) -> Awaitable[None]:
        """Done when a majority of etcd has the batch."""
        term = self.term
        if not term:
            raise Deposed(self.address, "that term is over", past=True)
        records, self._owed = [*self._owed, *codec.records(changes)], []
        self._at = self.now()
        pieces: list[bytes] = [b""]
        count = 0
        while count != len(pieces):
            # The number that a batch carries is that of its last entry.
            count = len(pieces)
            blob, chain = codec.write_batch(self._number + count, self._at, records, self._chain)
            pieces = entries.packed(blob, count)
        self._chain = chain
        due = self._log_bytes >= max(self._log_most, self.head.size) and clock.now() >= self._snapshot_after
        # Now the table is what this batch makes of it, and nothing else.
        copy = copied(self.table) if due and self._snapshot is None and self.table is not None else None
        return self._keep(pieces, len(changes), copy, term)

    async def _keep(self, pieces: list[bytes], changes: int, copy: Iterator[Change] | None, term: int) -> None:
        began = clock.now()
        for piece in pieces:
            await self._append(self._number + 1, piece, term)
            self._number += 1
        self._count(sum(map(len, pieces)), changes, clock.now() - began)
        if copy is not None:
            head = Head(self.head.first_number, self._number, self._chain, self._at)
            writing = Snapshot(self.etcd, self.keys, copy, head)
            self._snapshot = asyncio.get_running_loop().create_task(self._write(writing, term))

    async def _append(self, number: int, entry: bytes, term: int) -> None:
        """Write one entry of the log, as often as it takes: it is there once. Deposed if that term is over."""
        key, mine, membership = self.keys.log(number), self.mine(), self.membership
        assert membership is not None
        while True:
            try:
                answer = await self.etcd.decide(
                    [mine, steps.absent(key)],
                    [steps.put(key, entry)],
                    [steps.get(key), steps.get(self.keys.leader)],
                    until=membership.deadline,
                )
            except EngineUnavailable as error:
                self._still(term)
                if "space" in error.problem:
                    # Etcd may have applied it all the same. It refuses to write it again for as long as it is full.
                    applied = await self._is_there(key, entry, term)
                    self._still(term)
                    if applied:
                        return
                    self._full_until = clock.now() + FULL_FOR
                    raise StoreFull(self.address, error.problem) from error
                if not membership.alive:
                    raise Deposed(self.address, f"etcd was out of reach for a lease ({error.problem})") from error
                await asyncio.sleep(0.01)
                continue
            self._still(term)
            if answer.message.succeeded:
                return
            found, leader = (list(steps.kvs(each)) for each in answer.message.responses)
            if not found or found[0].value != entry:
                raise Deposed(self.address, "another server leads, or has led")
            # An earlier try of the same call.
            if not leader or leader[0].create_revision != term:
                raise Deposed(self.address, "another server leads, with all that was answered here")
            return

    def _still(self, term: int) -> None:
        """Something else may have happened while etcd was asked."""
        if self.term != term:
            raise Deposed(self.address, "that term is over", past=True)

    async def _is_there(self, key: bytes, entry: bytes, term: int) -> bool:
        """Whether an earlier try has written it. Deposed if that cannot be told, or another server leads since."""
        try:
            kv, _ = await read(self.etcd.call, key)
            leader, _ = await read(self.etcd.call, self.keys.leader)
        except EngineUnavailable as error:
            raise Deposed(self.address, f"etcd was out of reach ({error.problem})") from error
        if kv is None or kv.value != entry:
            return False
        if leader is None or leader.create_revision != term:
            raise Deposed(self.address, "another server leads, with all that was answered here")
        return True

    def _count(self, size: int, changes: int, seconds: float) -> None:
        self._log_bytes += size
        self._batches += 1
        self._changes += changes
        self._bytes += size
        self._seconds += seconds
        self.recent += (seconds - self.recent) / min(self._batches, 100)

    # The snapshot

    async def _write(self, snapshot: Snapshot, term: int) -> None:
        """Write a snapshot, and let go of what it stands for."""
        before = self._log_bytes
        try:
            written = await snapshot.write(term, self.head, self._head_revision)
        except asyncio.CancelledError:
            return
        except Exception as error:
            log.warning("no snapshot was made", extra={"problem": str(error)}, exc_info=error)
            self._snapshot_after = clock.now() + SNAPSHOT_AGAIN
            with suppress(EngineUnavailable):  # the next one that succeeds removes it too
                await snapshot.clear(term)
            return
        finally:
            if self.term == term:
                self._snapshot = None
        if written is None or self.term != term:
            return
        self.head, self._head_revision = written
        self._log_bytes = max(0, self._log_bytes - before)
        log.info("snapshot", extra={"number": self.head.number, "parts": self.head.parts, "bytes": self.head.size})
        await self._compact(self._head_revision)

    async def _compact(self, revision: int) -> None:
        """Let etcd forget the history before the snapshot before: followers had all that time to read it."""
        to, self._compact_to, self._compacted_at = self._compact_to, revision, clock.now()
        if self._compacts and to:
            try:
                await self.etcd.compact(to)
            except EngineUnavailable as error:
                # Somebody else may have done it.
                log.debug("etcd's history was not compacted", extra={"problem": str(error)})

    async def compact_now_and_then(self, revision: int) -> None:
        """The same for a cluster that makes no snapshots; `revision` is that of now, or 0."""
        if revision and clock.now() >= self._compacted_at + COMPACT_EVERY:
            await self._compact(revision)

    # The rest

    def has_room(self) -> bool:
        """Whether new claims may be written."""
        return clock.now() >= self._full_until

    @property
    def number(self) -> int:
        """The last entry of the log."""
        return self._number

    def figures(self) -> Figures:
        """Sizes and counts."""
        return Figures(
            batches=self._batches,
            changes=self._changes,
            bytes_written=self._bytes,
            commit_seconds=self._seconds,
            file_bytes=self._log_bytes + self.head.size,
            log_bytes=self._log_bytes,
            short_of_room=not self.has_room(),
        )

    def close(self) -> None:
        """Let go of etcd."""
        self.give_up()
        self.etcd.close()
