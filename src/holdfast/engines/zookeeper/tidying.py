"""Clearing away what nobody uses: empty lines, and cells whose value has ended.

Ephemeral nodes go by themselves; the nodes above them stay. ZooKeeper removes no node that has
children, so a line that somebody uses again at the same moment is safe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.engines.zookeeper.cells import dead_since
from holdfast.engines.zookeeper.ledger import Member
from holdfast.engines.zookeeper.link import Link
from holdfast.runtime import clock

if TYPE_CHECKING:
    from holdfast.engines.zookeeper.verbs import ZooKeeperVerbs

UNUSED = 60.0
"""After how many seconds without use a line is removed by whoever used it."""
PATROL = 600.0
"""How often a client looks for what others have left behind."""
A_STEP = 100
"""How many nodes are looked at with one heartbeat."""
CELL_KEPT = 86_400.0
MOST_AT_CLOSE = 1_000


class Tidier:
    """One client's share of the tidying, done in small steps beside its heartbeat."""

    def __init__(self, verbs: Any) -> None:
        self.verbs: ZooKeeperVerbs = verbs
        self._patrol_at: float | None = None
        self._lines: list[str] = []
        self._cells: list[str] = []
        self._empty: dict[str, int] = {}
        """Lines that were empty at the last patrol, and their zxid then."""

    async def step(self, link: Link, until: float) -> None:
        """Remove what is due, a little at a time."""
        now = self.verbs.io.now()
        used = self.verbs.ledger.used
        due = [path for path, at in used.copy().items() if at <= now - UNUSED][:A_STEP]
        if due:
            for path in due:
                used.pop(path, None)
            await self._delete(link, due, until)
        elif self._lines:
            await self._look_at_lines(link, until)
        elif self._cells:
            await self._look_at_cells(link, until)
        elif self._patrol_at is None:
            # Not all clients that start together at the same time.
            self._patrol_at = now + self.verbs.io.uniform(0.1, 1.0) * PATROL
        elif now >= self._patrol_at:
            self._patrol_at = now + PATROL
            await self.begin_patrol(link, until)

    async def begin_patrol(self, link: Link, until: float) -> None:
        """Find all that is there, to be looked at with the next heartbeats."""
        layout = self.verbs.layout
        for folder, found in ((layout.claims, self._lines), (layout.permits, self._lines), (layout.cells, self._cells)):
            for kind in await self.verbs.children(link, folder, until):
                names = await self.verbs.children(link, f"{folder}/{kind}", until)
                found += (f"{folder}/{kind}/{name}" for name in names)

    async def _delete(self, link: Link, paths: list[str], until: float) -> None:
        """Remove those that are empty, and their permits' nodes."""
        layout = self.verbs.layout
        paths = paths + [layout.permits + path[len(layout.claims) :] for path in paths if "/semaphore/" in path]
        await self.verbs.ready(link, until)
        await self.verbs.answers(link, until, *(link.kazoo.delete_async(path) for path in paths))

    async def _look_at_lines(self, link: Link, until: float) -> None:
        """Remove a line that has been empty since the patrol before."""
        paths = [self._lines.pop() for _ in range(min(A_STEP, len(self._lines)))]
        found = await self.verbs.contents(link, paths, until)
        old = []
        for path, one in zip(paths, found, strict=True):
            last = self._empty.pop(path, None)
            if one is not None and not one[1].numChildren:
                if last == one[1].pzxid:
                    old.append(path)
                else:
                    self._empty[path] = one[1].pzxid
        if old:
            await self.verbs.ready(link, until)
            await self.verbs.answers(link, until, *(link.kazoo.delete_async(path) for path in old))

    async def _look_at_cells(self, link: Link, until: float) -> None:
        """Remove a cell whose value ended a day ago."""
        now = link.clock.at(clock.now())
        if now is None:
            return
        paths = [self._cells.pop() for _ in range(min(A_STEP, len(self._cells)))]
        found = await self.verbs.contents(link, paths, until)
        old = []
        for path, one in zip(paths, found, strict=True):
            dead = None if one is None else dead_since(*one)
            if one is not None and dead is not None and dead + CELL_KEPT <= now:
                old.append((path, one[1].version))
        if old:
            await self.verbs.ready(link, until)
            await self.verbs.answers(link, until, *(link.kazoo.delete_async(path, version) for path, version in old))

    async def leave_all(self, member: Member, until: float) -> None:
        """Give back all that a session has, and remove the lines that it leaves empty."""
        link, verbs = member.link, self.verbs
        entries = list(member.claims.values())
        for first in range(0, len(entries), A_STEP):
            part = entries[first : first + A_STEP]
            await verbs.answers(link, until, *(verbs.removal(entry).commit_async() for entry in part))
        used = list(verbs.ledger.used)[:MOST_AT_CLOSE]
        for first in range(0, len(used), A_STEP):
            await self._delete(link, used[first : first + A_STEP], until)
