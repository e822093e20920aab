"""What the verbs of ZooKeeper share: the engine's state, and the steps that several of them take."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kazoo.exceptions import NodeExistsError, NoNodeError

from holdfast.engines.zookeeper.asking import Asker, Dropped, Late, LinkOver
from holdfast.engines.zookeeper.line import LAYOUT
from holdfast.engines.zookeeper.link import Link
from holdfast.engines.zookeeper.node_data import packed, unpacked
from holdfast.engines.zookeeper.queue_view import QueueView
from holdfast.engines.zookeeper.token_table import TokenTable
from holdfast.errors import EngineFailure, HoldfastError, Outcome
from holdfast.model import MAX_TOKEN
from holdfast.runtime.io import Io, Signal

if TYPE_CHECKING:
    from holdfast.engines.zookeeper.engine import ZooKeeperEngine

READER_TTL = 10.0


class Part(Asker):
    """Some of the verbs."""

    def __init__(self, engine: ZooKeeperEngine, io: Io, bell: Signal) -> None:
        super().__init__(io, engine.address)
        self.engine, self.bell = engine, bell
        self.ledger, self.layout = engine.ledger, engine.layout

    async def looking(self, until: float) -> Link:
        """A link for what needs no session of ours."""
        self.ledger.check_free()
        for session in list(self.ledger.members):
            member = self.ledger.member(session)
            if member is not None and member.link.connected:
                return member.link
        with self.ledger.lock:
            link = self.ledger.reader
            if link is None or link.over is not None:
                link = self.ledger.reader = Link(self.engine.place, READER_TTL, beats=False)
                link.counted = self.engine.counted
                link.start()
        try:
            await self.ready(link, until)
            if link.tokens is None:
                await self.read_base(link, until)
        except LinkOver as over:
            raise EngineFailure(self.address, str(over), "not done") from over
        return link

    async def read_base(self, link: Link, until: float) -> None:
        """How zxids become tokens; nothing while the namespace is not there."""
        (found,) = await self.read(link, until, lambda kazoo: kazoo.get_async(self.layout.base))
        if not isinstance(found, NoNodeError):
            self.take_base(link, found[0])

    def take_base(self, link: Link, data: bytes) -> None:
        """Keep the base and the epochs, if we can read what this namespace has become."""
        kept = unpacked(data)
        if kept.get("layout", 0) > LAYOUT:
            raise HoldfastError(
                f"{self.address}: namespace {self.layout.namespace!r} has layout {kept['layout']}, this Holdfast reads "
                f"up to {LAYOUT}: use a newer one"
            )
        link.tokens = TokenTable.read(kept)

    async def token(self, link: Link, zxid: int, until: float) -> int | None:
        """The token of a write that was made just now; None if it has none, and must be made again."""
        await self.set_aside(link, zxid, until)
        assert link.tokens is not None
        token = link.tokens.token(zxid)
        return None if token is None else self._checked(token, "not done")

    async def version(self, link: Link, zxid: int, until: float, outcome: Outcome = "not done") -> int:
        """The version of what was written last at this zxid. `outcome`: what to say of the write if that fails."""
        try:
            await self.set_aside(link, zxid, until)
        except EngineFailure as error:
            raise EngineFailure(error.engine, error.problem, outcome) from error
        assert link.tokens is not None
        version = link.tokens.version(zxid)
        assert version is not None
        return self._checked(version, outcome)

    def _checked(self, token: int, outcome: Outcome) -> int:
        if token > MAX_TOKEN:
            raise EngineFailure(self.address, f"token {token} is over 2^53: use a new namespace", outcome)
        return token

    async def set_aside(self, link: Link, zxid: int, until: float, *, early: bool = False) -> None:
        """See to it that tokens are set aside for a write that was made just now. `early`: before they run out."""
        while True:
            tokens = link.tokens
            if tokens is not None and tokens.version(zxid) is not None and not (early and tokens.is_short(zxid)):
                return
            (found,) = await self.read(link, until, lambda kazoo: kazoo.get_async(self.layout.base))
            if isinstance(found, NoNodeError):
                raise EngineFailure(self.address, f"namespace {self.layout.namespace!r} was removed", "not done")
            data, stat = found
            self.take_base(link, data)
            tokens = link.tokens
            assert tokens is not None
            if tokens.version(zxid) is not None and not tokens.is_short(zxid):
                return
            wider = packed({"layout": LAYOUT, **tokens.with_room(zxid).as_dict()})
            await self.ready(link, until)
            with suppress(Dropped):
                # Whatever came of it, what is kept now is read again.
                await self.answer(link, until, link.kazoo.set_async(self.layout.base, wider, stat.version))

    async def make_paths(self, link: Link, paths: Sequence[str], until: float) -> None:
        """Make nodes and those above them, where they are missing: all of them in two round trips."""
        wanted = list(dict.fromkeys(above for path in paths for above in _upwards(path)))
        found = await self.read(link, until, *(_exists(path) for path in wanted))
        missing = [path for path, stat in zip(wanted, found, strict=True) if stat is None]
        while missing:
            await self.ready(link, until)
            try:
                made = await self.answers(link, until, *(link.kazoo.create_async(path) for path in missing))
            except Dropped:
                continue
            # One that somebody has just tidied away is missing again.
            if not any(isinstance(one, NoNodeError) for one in made):
                return

    async def make_namespace(self, link: Link, until: float) -> None:
        """Make what every session needs. The base is the time of the namespace's creation, by the server's clock."""
        layout = self.layout
        folders = (layout.sessions, layout.notes, layout.claims, layout.permits, layout.cells)
        await self.make_paths(link, folders, until)
        (stat,) = await self.read(link, until, lambda kazoo: kazoo.exists_async(layout.root))
        data = packed({"layout": LAYOUT, **TokenTable.begun(stat.ctime * 1000, stat.czxid).as_dict()})
        while True:
            await self.ready(link, until)
            try:
                made = await self.answer(link, until, link.kazoo.create_async(layout.base, data))
            except Dropped:
                continue
            assert isinstance(made, str | NodeExistsError)
            return

    async def children(self, link: Link, path: str, until: float, synced: bool = False) -> list[str]:
        """The names of the nodes under a path; none if it is not there. `synced`: by a server that does not lag."""
        sent = [lambda kazoo: kazoo.get_children_async(path)]
        if synced:
            sent.insert(0, lambda kazoo: kazoo.sync_async(path))
        *_, found = await self.read(link, until, *sent)
        return [] if isinstance(found, NoNodeError) else found

    async def refresh(self, view: QueueView, until: float) -> None:
        """Have the queue listed by a request that is sent from now on, one for all who ask meanwhile."""
        while True:
            await self.ready(view.link, until)
            before, signal = view.lists, self.io.signal()
            view.ask(signal.set, self.io.now())
            if not await self.io.wait(signal, until):
                raise Late(self.address, "no answer came in time", "unknown")
            if view.lists != before:
                return

    async def contents(self, link: Link, paths: list[str], until: float) -> list[Any]:
        """Data and stat of each node, None for one that is gone."""
        found: list[Any] = []
        for first in range(0, len(paths), 200):
            part = paths[first : first + 200]
            found += await self.read(link, until, *(_getter(path) for path in part))
        return [None if isinstance(one, NoNodeError) else one for one in found]


def estimated(link: Link, zxid: int) -> int:
    """The token of a grant that was confirmed at this zxid, as people see it."""
    assert link.tokens is not None
    return link.tokens.estimate(zxid)


def _getter(path: str) -> Any:
    return lambda kazoo: kazoo.get_async(path)


def _exists(path: str) -> Any:
    return lambda kazoo: kazoo.exists_async(path)


def _upwards(path: str) -> list[str]:
    """A path and those above it, the highest first."""
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(2, len(parts) + 1)]
