"""`redlock://h1,h2,h3`: a majority of independent Redis servers, none of which knows of the others."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from holdfast.core import quorum
from holdfast.core.table.commands import GRANTED, Notice
from holdfast.core.table.rows import Session
from holdfast.core.urls import Url
from holdfast.engines.checkup import Finding
from holdfast.engines.engine import Deliver, nobody
from holdfast.engines.redis.checkup import check_nodes
from holdfast.engines.redis.route import OneServer, database, find_tls
from holdfast.engines.redlock.bell import Bell
from holdfast.engines.redlock.ledger import Ledger
from holdfast.engines.redlock.nodes import NodesAsyncioPort
from holdfast.engines.redlock.rests import Rests
from holdfast.engines.redlock.team import NodesPort
from holdfast.engines.redlock.verbs import AHEAD, RedlockVerbs
from holdfast.engines.resp.wire import Login, parse_address
from holdfast.errors import InvalidRequest
from holdfast.model import Guarantees
from holdfast.runtime.asyncio import AsyncioIo
from holdfast.runtime.blocking import BlockingIo

NODE_LIMIT = 0.25
"""How long one node is waited for, in seconds, unless the URL says otherwise."""

GUARANTEES = Guarantees(
    consensus=False,
    durable=False,
    leased=True,
    fair=False,
    notified=False,
    deadlock_detection=False,
    fencing="clock",
    clock="wall",
    modes=frozenset({"exclusive"}),
    events=frozenset(),
    cells=False,
    hand_over=False,
    lost_node="Goes on while a majority answers. A node that comes back empty may give a lock twice, together with "
    "others that were not asked or have expired.",
    summary="Efficiency, not correctness, unless fenced: exclusion rests on the wall clocks of a majority of nodes "
    "and on no pause that is longer than what is left of the ttl.",
)


class RedlockEngine:
    """One client's way to all nodes."""

    schemes = ("redlock",)
    options = frozenset({"db", "tls", "ca", "cert", "key", "verify", "node_limit"})
    guarantees = GUARANTEES
    instead = "redis://"
    shortest_ttl = 0.5

    def __init__(self, url: Url, namespace: str) -> None:
        if len(set(url.hosts)) < quorum.FEWEST_NODES:
            rule = f"Redlock needs {quorum.FEWEST_NODES} different nodes or more, as in redlock://h1,h2,h3"
            raise InvalidRequest("url", str(url), rule)
        nodes = [parse_address(host.lower(), 6379) for host in url.hosts]
        for address, times in Counter(nodes).items():
            if times > 1:
                raise InvalidRequest("url", str(url), f"it names {address} twice: a majority is one of different nodes")
        self.address, self.namespace = str(url), namespace
        self.prefix = f"holdfast:1:{{{namespace}}}:"
        self.deliver: Deliver = nobody
        self.node_limit = seconds(url.options.get("node_limit", str(NODE_LIMIT)))
        login = Login(url.user, url.password, database(url.path or url.options.get("db", "0")))
        tls = find_tls(url, url.flag("tls"))
        self.routes = [OneServer(address, login, tls) for address in nodes]
        self._ahead = 0.0
        self._start()

    def _start(self) -> None:
        self.ledger = Ledger()
        self.bell = Bell(lambda claim_id: self.deliver(Notice("", claim_id, GRANTED)))
        self.session: Session | None = None
        self.ttl = 0.0
        """Of the last session that was opened."""
        self.rests = Rests(len(self.routes))
        self._ports: list[NodesPort] = []
        self._loop_ports: list[NodesAsyncioPort] = []

    def check_nodes(self) -> None:
        """Raise InvalidRequest if two of the addresses that were connected to belong to one server."""
        same = self.rests.same()
        if same is not None:
            one, other = (self.routes[node].address for node in same)
            rule = f"{one} and {other} are one server: a majority is one of different nodes"
            raise InvalidRequest("url", self.address, rule)

    # Tokens

    def hoped_token(self) -> int:
        """A number that all nodes can take: then the token is confirmed in the same round. Only speed rests on it."""
        return int((time.time() + self._ahead) * 1_000_000) + AHEAD

    def heard_token(self, token: int, hoped: int) -> None:
        """Learn how far the nodes' clocks are ahead of this one; nothing is learnt from one's own number."""
        if token != hoped:
            self._ahead = token / 1_000_000 - time.time()

    # Verbs

    def blocking(self) -> RedlockVerbs:
        port = NodesPort(self.routes, self.rests)
        self._ports.append(port)
        return RedlockVerbs(self, BlockingIo(port), self.bell)

    def asyncio(self, loop: asyncio.AbstractEventLoop) -> RedlockVerbs:
        port = NodesAsyncioPort(self.routes, self.rests, loop)
        self._loop_ports.append(port)
        io = AsyncioIo(port, loop)
        return RedlockVerbs(self, io, io.signal())

    def check_up(self) -> list[Finding]:
        """What the deployment is really set up to."""
        return check_nodes(self.address, [*self.routes])

    def abandon(self) -> None:
        """Closing a socket here says nothing: the parent has it too. A loop's connections are left alone altogether."""
        for port in self._ports:
            port.abandon()
        _abandoned.append(self._loop_ports)
        self._start()

    def settle(self, wait: bool) -> None:
        """Take the answers that blocking callers went on without: what has come, or each until its limit is over."""
        for port in self._ports:
            port.settle(wait)

    def close(self) -> None:
        for port in self._ports:
            port.close()
        for loop_port in self._loop_ports:
            loop_port.close()
        self._ports, self._loop_ports = [], []


def seconds(text: str) -> float:
    """How long a node is waited for."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0.001 <= found <= 60:
        raise InvalidRequest("url option node_limit", text, "seconds, from 0.001 to 60")
    return found


_abandoned: list[object] = []
