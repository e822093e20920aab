"""The verbs of ZooKeeper, put together."""

from __future__ import annotations

from kazoo.exceptions import BadVersionError, NotEmptyError

from holdfast.core.table.commands import Done
from holdfast.engines.zookeeper.asking import LinkOver
from holdfast.engines.zookeeper.cells import CellVerbs
from holdfast.engines.zookeeper.line import LAYOUT
from holdfast.engines.zookeeper.node_data import packed, unpacked
from holdfast.engines.zookeeper.people import PeopleVerbs
from holdfast.engines.zookeeper.sessions import SessionVerbs
from holdfast.engines.zookeeper.token_table import TokenTable
from holdfast.engines.zookeeper.watching import WatchVerbs
from holdfast.errors import EngineFailure


class ZooKeeperVerbs(PeopleVerbs, SessionVerbs, CellVerbs, WatchVerbs):
    """Speaks to an ensemble through one Io."""

    async def raise_tokens(self, above: int, until: float) -> Done:
        """Raise the base. The node above all sessions is made anew in the same step, which fails while there is one."""
        link = await self.looking(until)
        layout = self.layout
        try:
            await self.make_namespace(link, until)
            while True:
                (found,) = await self.read(link, until, lambda kazoo: kazoo.get_async(layout.base))
                data, stat = found
                tokens = TokenTable.read(unpacked(data))
                if tokens.estimate(stat.mzxid) > above:
                    return Done()
                transaction = link.kazoo.transaction()
                transaction.delete(layout.sessions)
                transaction.create(layout.sessions)
                transaction.set_data(
                    layout.base, packed({"layout": LAYOUT, **tokens._replace(base=above).as_dict()}), stat.version
                )
                done = await self.together(link, until, transaction)
                if isinstance(done, NotEmptyError):
                    problem = f"namespace {layout.namespace!r} is in use: tokens are raised while nobody is connected"
                    raise EngineFailure(self.address, problem, "not done")
                if not isinstance(done, BadVersionError):
                    link.tokens = None
                    return Done()
        except LinkOver as over:
            raise EngineFailure(self.address, "the session ended before the answer came", "unknown") from over
