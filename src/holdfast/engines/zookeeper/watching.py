"""Being told what happens to locks in ZooKeeper.

One watch that stays, on all lines of a namespace, tells every change of a node in order. What a
change means is worked out from the line as it was before. Who releases a lock leaves word of it in
the line's own node, in the same step, so that a grant shorter than a round trip is told too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kazoo.exceptions import NoNodeError

from holdfast.core.names import matches
from holdfast.core.table.commands import LETTER, Done, Letters, Notice, SessionOver
from holdfast.engines.zookeeper.asking import Dropped, LinkOver
from holdfast.engines.zookeeper.line import Layout, Stand, in_order, position, read, unquoted
from holdfast.engines.zookeeper.link import Link
from holdfast.engines.zookeeper.node_data import unpacked
from holdfast.engines.zookeeper.part import Part, estimated
from holdfast.errors import Unsupported
from holdfast.model import EventType, LockEvent, Mode

CREATED, DELETED, CHANGED = 1, 2, 3
MOST_LETTERS = 10_000
CHANGE = LockEvent("changed", "", "", "", "", 0.0)
"""What is told of a cell: whoever hears it reads."""


@dataclass(eq=False)
class Watch:
    """One who wants to be told."""

    session: str
    id: str
    hears: Callable[[str, str], bool]
    cell: str = ""
    """The path of the cell that it is about; none if it is about locks."""
    armed: bool = True
    """Whether the next change of the cell is told."""
    told: Callable[..., None] | None = None
    """What is called back then."""
    letters: deque[tuple[int, LockEvent]] = field(default_factory=deque)
    last: int = 0
    overflowed: bool = False

    def take(self, event: LockEvent) -> None:
        """Keep an event until it is fetched."""
        self.last += 1
        self.letters.append((self.last, event))
        if len(self.letters) > MOST_LETTERS:
            self.letters.popleft()
            self.overflowed = True


@dataclass(eq=False)
class Known:
    """A claim as the stream knows it."""

    stand: Stand
    owner: str = ""
    token: int | None = None
    granted: bool = False
    """Whether it was told that it is granted."""
    unread: bool = False
    """Whether it was granted and gone before its node could be read."""


class Stream:
    """The events of one link, in order. Everything here runs in the connection's thread once it has begun."""

    def __init__(self, link: Link, layout: Layout, tell: Callable[[str, str, LockEvent], None]) -> None:
        self.link, self.layout, self._tell = link, layout, tell
        self.lines: dict[str, dict[str, Known]] = {}
        self._records: dict[str, dict[str, Any]] = {}
        """By claim: the record of its removal."""
        self._waiting: deque[tuple[int, str, Any]] = deque()
        self.begun = False

    def hear(self, what: int, path: str) -> None:
        """Something happened to a node; ask what there is to know about it, and keep the order."""
        parts = path[len(self.layout.claims) + 1 :].split("/")
        if len(parts) < 2:
            return
        kazoo = self.link.kazoo
        if len(parts) == 3 and what == DELETED:
            stand = read(parts[2])
            asked = None if stand is None else kazoo.exists_async(self.layout.session(stand.session))
        elif len(parts) == 3 or what == CHANGED:
            asked = kazoo.get_async(path)
        else:
            return
        self._waiting.append((what, path, asked))
        if asked is not None:
            asked.rawlink(lambda _: self.drain())

    def drain(self) -> None:
        """Take what is known by now, from the front."""
        while self.begun and self._waiting:
            what, path, asked = self._waiting[0]
            if asked is not None and not asked.ready():
                return
            self._waiting.popleft()
            if asked is not None and not isinstance(asked.exception, NoNodeError | None):
                continue  # the connection broke: everything is looked at anew
            found = None if asked is None or asked.exception is not None else asked.value
            line, _, node = path.rpartition("/")
            if line.rpartition("/")[0] == f"{self.layout.claims}/{line.rpartition('/')[0].rpartition('/')[2]}":
                self._claim(what, line, node, found)
            elif found is not None:
                self._records.update(unpacked(found[0]))

    def _claim(self, what: int, line: str, node: str, found: Any) -> None:
        known = self.lines.setdefault(line, {})
        if what == DELETED:
            self._deleted(line, known, node, there=found is not None)
            return
        stand = read(node)
        if stand is None:
            return
        one = known.setdefault(node, Known(stand))
        about = {} if found is None else unpacked(found[0])
        one.owner = about.get("owner", one.owner)
        place = position(in_order(known), node)
        ahead = place is not None and place.held
        held = "slot" in about if stand.limit else ahead
        if found is None:
            # What is written to the node of a claim for a permit is the permit.
            one.unread = one.unread or (ahead and (what == CHANGED or not stand.limit))
        if held and not one.granted and found is not None:
            one.token = about.get("token") or estimated(self.link, found[1].mzxid)
            self._granted(line, one)
        elif what == CREATED and not ahead and stand.waits:
            self._emit("queued", line, one)

    def _deleted(self, line: str, known: dict[str, Known], node: str, there: bool) -> None:
        one = known.pop(node, None)
        if not known:
            self.lines.pop(line, None)
        stand = read(node)
        record = None if stand is None else self._records.pop(stand.claim, None)
        if one is None:
            return
        if record is None:
            # Its session ended, or a later release overwrote the record: then no more is known than the node's name.
            if one.unread and not one.granted:
                self._granted(line, one)
        elif not one.granted and record.get("token"):
            # It was granted and given back before we could look.
            one.owner, one.token = record.get("owner", ""), record["token"]
            self._granted(line, one)
        if one.granted:
            how: EventType = record["how"] if record is not None else "released" if there else "expired"
            self._emit(how, line, one)

    def _granted(self, line: str, one: Known) -> None:
        one.granted = True
        self._emit("granted", line, one)

    def _emit(self, what: EventType, line: str, one: Known) -> None:
        folder, _, segment = line.rpartition("/")
        kind, name = self.layout.kind(folder.rpartition("/")[2]), unquoted(segment)
        at = self.link.clock.shown()
        mode: Mode = "exclusive" if one.stand.exclusive else "shared"
        token = None if what == "queued" else one.token
        event = LockEvent(what, kind, name, one.owner, one.stand.claim, at, token, mode)
        self._tell(kind, name, event)

    def begin(self, found: dict[str, dict[str, Known]]) -> None:
        """Start from what is there now."""
        self.lines = found
        self.begun = True


class WatchVerbs(Part):
    """Watch locks, watch a cell, fetch."""

    async def watch(self, session: str, id_: str, kind: str, prefix: str, until: float) -> Done | SessionOver:
        member = self.ledger.member(session)
        if member is None:
            return SessionOver()

        def hears(its_kind: str, name: str) -> bool:
            right = its_kind.startswith(kind) if kind.endswith(".") else its_kind == kind
            return right and matches(prefix, name)

        watch = Watch(session, id_, hears)
        try:
            await self._stream(member.link, session, until)
        except LinkOver:
            return SessionOver()
        self.engine.watches[id_] = watch
        return Done()

    async def _stream(self, link: Link, session: str, until: float) -> None:
        """Begin to be told of everything, or begin again after the connection was lost."""
        stream = self.engine.streams.get(session)
        if stream is not None and stream.begun and self.layout.claims in link.streams:
            return
        while True:
            await self.ready(link, until)
            fresh = Stream(link, self.layout, partial(self._deliver, session))
            try:
                added = await self.answer(link, until, link.add_watch(self.layout.claims, fresh.hear))
                if isinstance(added, Exception):
                    raise Unsupported(self.address, "watching locks before ZooKeeper 3.6", "sqlite://")
                found = await self._all_lines(link, until)
            except Dropped:
                continue
            break
        self.engine.streams[session] = fresh
        for watch in list(self.engine.watches.values()):
            if watch.session == session and not watch.cell:
                # What came and went while the connection was lost left no trace.
                watch.overflowed = True
        fresh.begin(found)
        fresh.drain()

    async def _all_lines(self, link: Link, until: float) -> dict[str, dict[str, Known]]:
        lines: dict[str, dict[str, Known]] = {}
        for kind in await self.children(link, self.layout.claims, until):
            for segment in await self.children(link, f"{self.layout.claims}/{kind}", until):
                line = f"{self.layout.claims}/{kind}/{segment}"
                stands = in_order(await self.children(link, line, until))
                found = await self.contents(link, [f"{line}/{stand.node}" for stand in stands], until)
                known = {stand.node: Known(stand) for stand in stands}
                for stand, one in zip(stands, found, strict=True):
                    about = {} if one is None else unpacked(one[0])
                    known[stand.node].owner = about.get("owner", "")
                    place = position(stands, stand.node)
                    if one is not None and place is not None and place.held:
                        known[stand.node].token = about.get("token") or estimated(link, one[1].mzxid)
                        known[stand.node].granted = True
                if known:
                    lines[line] = known
        return lines

    def _deliver(self, session: str, kind: str, name: str, event: LockEvent) -> None:
        """Put an event into the letters of those who want it; in the connection's thread."""
        for watch in list(self.engine.watches.values()):
            if watch.session == session and watch.hears(kind, name):
                watch.take(event)
                self.engine.deliver(Notice(session, watch.id, LETTER))

    async def cell_watch(self, session: str, id_: str, kind: str, name: str, until: float) -> Done | SessionOver:
        member = self.ledger.member(session)
        if member is None:
            return SessionOver()
        watch = Watch(session, id_, lambda its_kind, its_name: False, self.layout.cell(kind, name))
        try:
            await self._arm(member.link, watch, until)
        except LinkOver:
            return SessionOver()
        self.engine.watches[id_] = watch
        return Done()

    async def _arm(self, link: Link, watch: Watch, until: float) -> None:
        """Be told of the next change of a cell."""
        while True:
            await self.ready(link, until)
            watch.armed = True
            told = watch.told = partial(self._cell_changed, watch)
            try:
                await self.answer(link, until, link.kazoo.exists_async(watch.cell, watch=told))
                return
            except Dropped:
                continue

    def _cell_changed(self, watch: Watch, _: Any) -> None:
        """In the connection's thread. Whoever fetches this has itself told of the next change, then reads."""
        watch.armed = False
        watch.take(CHANGE)
        self.engine.deliver(Notice(watch.session, watch.id, LETTER))

    async def fetch(self, session: str, id_: str, after: int, until: float) -> Letters | SessionOver:
        member, watch = self.ledger.member(session), self.engine.watches.get(id_)
        if member is None or watch is None:
            return SessionOver()
        try:
            if not watch.cell:
                await self._stream(member.link, session, until)
            elif not watch.armed:
                await self._arm(member.link, watch, until)
                if watch.last <= after:
                    # Its last change was read before it was armed again, and another one may have come between.
                    watch.take(CHANGE)
        except LinkOver:
            return SessionOver()
        while watch.letters and watch.letters[0][0] <= after:
            watch.letters.popleft()
        letters = list(watch.letters)
        overflowed, watch.overflowed = watch.overflowed, False
        return Letters(tuple(event for _, event in letters), letters[-1][0] if letters else after, overflowed)

    async def unwatch(self, session: str, id_: str, until: float) -> Done:
        member, watch = self.ledger.members.get(session), self.engine.watches.pop(id_, None)
        if member is not None and watch is not None and watch.told is not None:
            member.link.drop_watch(watch.cell, watch.told)
        return Done()
