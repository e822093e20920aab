"""A lock server's way to the simulated etcd: the real tries, endpoint after endpoint, over a simulated network."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.engines.etcd.address import Address
from holdfast.engines.etcd.batch import in_turn
from holdfast.engines.etcd.http2 import DEADLINE_EXCEEDED, UNAVAILABLE, CallFailed
from holdfast.engines.etcd.wire import Answer, Attempts, Endpoint, Request
from holdfast.runtime import clock
from holdfast.runtime.simulated import Machine
from holdfast.server.cluster.wire import WITHIN, Etcd
from holdfast.simulate.etcd import NODES, SimulatedEtcd

if TYPE_CHECKING:
    from holdfast.engines.etcd.watcher import Hear, Watcher
    from holdfast.simulate.loop import SimulatedLoop


class SimulatedEndpoint(Endpoint):
    """One node, seen from one machine."""

    def __init__(self, address: Address, etcd: SimulatedEtcd, node: int, machine: Machine, loop: SimulatedLoop) -> None:
        super().__init__(address, NODES[node])
        self._etcd, self._node, self._machine, self._loop = etcd, node, machine, loop

    async def ask(self, request: Request, limit: float) -> Any:
        """Send a request and await its answer; CallFailed if none comes in time."""
        etcd, there = self._etcd, self._etcd.nodes[self._node].machine
        network, done = etcd.network, self._loop.create_future()
        if there.dead:
            refused = CallFailed(UNAVAILABLE, "connection refused", sent=False)
            network.later(partial(self._end, done, refused), self._machine)
        else:
            answer = partial(self._answer, done)
            if not network.carry(self._machine, there, partial(etcd.handle, self._node, request, answer)):
                network.later(partial(self._end, done, CallFailed(UNAVAILABLE, "connection lost")), self._machine)
        late = CallFailed(DEADLINE_EXCEEDED, "no answer in time")
        timer = self._loop.call_later(limit, self._end, done, late)
        found = await done
        timer.cancel()
        if isinstance(found, CallFailed):
            raise found
        return found

    def _answer(self, done: asyncio.Future[Any], reply: Any) -> None:
        """At the node: send the answer back. One that is lost is not waited for longer than any other."""
        there = self._etcd.nodes[self._node].machine
        self._etcd.network.carry(there, self._machine, partial(self._end, done, reply))

    def _end(self, done: asyncio.Future[Any], found: Any) -> None:
        """On this machine, in a turn of the loop."""
        self._loop.call_soon(self._settle, done, found)

    @staticmethod
    def _settle(done: asyncio.Future[Any], found: Any) -> None:
        if not done.done():
            done.set_result(found)

    def exchange(self, name: str, request: Any, token: str, limit: float) -> Any:
        """Nobody blocks here; who asks how etcd is, is told that it does not say."""
        raise CallFailed(UNAVAILABLE, "it is simulated", sent=False)


class SimulatedWatcher:
    """Hears of written keys."""

    def __init__(self, etcd: SimulatedEtcd, machine: Machine) -> None:
        self._etcd, self._machine = etcd, machine

    def watch(self, name: str, key: bytes, start: int, hear: Hear) -> None:
        """Begin to watch. What was written since `start` was seen is told at once."""
        self._etcd.watches[self] = key, self._machine, partial(hear, ())
        if self._etcd.keys.at(key).modified >= start:
            self._etcd.network.later(partial(hear, ()), self._machine)

    def unwatch(self, name: str) -> None:
        self._etcd.watches.pop(self, None)

    def unwatch_all(self) -> None:
        self._etcd.watches.pop(self, None)

    stop = unwatch_all

    def restart(self) -> None:
        """It does not depend on an endpoint."""


class EtcdClient(Etcd):
    """The real client but for its sockets."""

    def __init__(self, etcd: SimulatedEtcd, machine: Machine, loop: SimulatedLoop) -> None:
        address = Address(NODES, "etcd://simulated")
        super().__init__(address)
        self._etcd, self._machine = etcd, machine
        self._ends = [SimulatedEndpoint(address, etcd, node, machine, loop) for node in range(len(NODES))]
        self.wire.endpoints = list(self._ends)

    async def call(self, request: Request, until: float | None = None) -> Answer:
        async def ask(endpoint: Endpoint, limit: float) -> Any:
            assert isinstance(endpoint, SimulatedEndpoint)
            return await endpoint.ask(request, limit)

        return await in_turn(Attempts(self.wire, request, clock.now() + WITHIN if until is None else until), ask)

    def watcher(self) -> Watcher:
        watcher: Any = SimulatedWatcher(self._etcd, self._machine)
        made: Watcher = watcher
        return made

    def new_lease(self) -> int:
        return self._etcd.world.random.getrandbits(62) + 1
