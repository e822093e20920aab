"""The lock server in virtual time: its real service, batches, commands and wire, on a disk that forgets.

Real: all of `holdfast.server` from the bytes of a request to the bytes of its reply, the records and the recovery of
its store, and the client of `holdfast://` but for its sockets. Simulated: the loop, the connections, and the disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.core import urls
from holdfast.core.table import Dictionary
from holdfast.core.table.changes import Change
from holdfast.core.table.commands import Command, Enter
from holdfast.engines.engine import Verbs
from holdfast.engines.holdfast.desk import Desk
from holdfast.engines.holdfast.engine import HoldfastEngine
from holdfast.engines.holdfast.port import Port
from holdfast.engines.resp.wire import Address
from holdfast.engines.table_verbs import TableVerbs
from holdfast.model import Place
from holdfast.runtime.simulated import Machine
from holdfast.server import codec, recovery
from holdfast.server.connection import Connection
from holdfast.server.dispatch import Commands
from holdfast.server.frames import Frame
from holdfast.server.limits import Limits
from holdfast.server.logins import Logins
from holdfast.server.service import About, Service
from holdfast.server.store import Figures
from holdfast.server.users import Users
from holdfast.server.window import Window
from holdfast.simulate.loop import Running, SimulatedLoop
from holdfast.simulate.network import Network, NetworkIo
from holdfast.simulate.server_wire import SimulatedWire
from holdfast.simulate.simulation import MANAGER, Simulation
from holdfast.simulate.streams import Cable, ServerEnd
from holdfast.simulate.table_server import Answer, Disk, forget_unkept

if TYPE_CHECKING:
    from holdfast.runtime.simulated import World

ABOUT = About("simulated", "simulated", "simulated", durable=True)


class SimulatedStore:
    """A log of batches on a simulated disk: the same bytes that a real store writes, and the same way back."""

    address = "simulated://"
    shortest_ttl = patience = 0.0

    def __init__(self, world: World, machine: Machine, disk: Disk, loop: SimulatedLoop) -> None:
        self._world, self._machine, self._disk, self._loop = world, machine, disk, loop
        self._number = self._sum = 0
        self._owed: list[codec.Record] = []

    def load(self) -> Dictionary:
        window, at = Window(), 0.0
        self._number = self._sum = 0
        for blob in self._disk.kept:
            batch = codec.read_batch(blob, self._number + 1, self._sum)
            window.absorb(batch.records)
            self._number, self._sum, at = batch.number, batch.sum, batch.at
        table = recovery.rebuild(0, (), window)
        raised = recovery.raise_counters(table, int(self.now() * 1_000_000))
        self._owed = codec.records([*raised, *recovery.grace(table, self.now(), at)])
        return table

    def may_answer(self) -> bool:
        """There is no other server."""
        return True

    def now(self) -> float:
        return self._machine.now()

    async def keep(self, changes: Sequence[Change], may_block: bool = False) -> None:
        records, self._owed = [*self._owed, *codec.records(changes)], []
        self._number += 1
        blob, self._sum = codec.write_batch(self._number, self.now(), records, self._sum)
        self._disk.write([blob])
        done = self._loop.create_future()
        self._loop.call_later(self._disk.sync, self._synced, done)
        await done

    def _synced(self, done: Any) -> None:
        self._disk.synced(len(self._disk.written))
        done.set_result(None)

    def has_room(self) -> bool:
        return True

    def figures(self) -> Figures:
        return Figures(batches=self._number)

    def close(self) -> None:
        """Nothing is open."""


class WatchedService(Service):
    """Notes when a claim was given its place in line, for the judge of order."""

    queued: dict[str, float]
    world: World

    def time_of_day(self) -> float:
        return self.store.now()

    def step(self, command: Command) -> Any:
        reply = super().step(command)
        if type(command) is Enter and type(reply) is Place:
            self.queued.setdefault(command.claim.id, self.world.time)
        return reply


class WatchedCommands(Commands):
    """A mistake inside the server, which a client only sees as an error, is noticed."""

    def __init__(self, failures: list[BaseException]) -> None:
        super().__init__(Logins(ABOUT.version))
        self._failures = failures

    def carry_out(self, connection: Connection, frame: Frame) -> bytes | None:
        reply = super().carry_out(connection, frame)
        if reply is not None and reply.startswith(b"-ERR internal"):
            self._failures.append(AssertionError(f"the server failed at {frame!r}"))
        return reply


class LockServer:
    """One lock server on a machine of its own: it crashes, and comes back with what its disk has kept."""

    repeatable = frozenset[type]()

    def __init__(self, network: Network, machine: Machine, disk: Disk | None = None) -> None:
        self.network, self.world, self.machine = network, network.world, machine
        self.disk = disk or Disk()
        self.queued: dict[str, float] = {}
        """By claim: when it was given a place in line."""
        self.failures: list[BaseException] = []
        self._cables: list[Cable] = []
        self.start()

    def start(self) -> None:
        """Start its process."""
        self.loop = SimulatedLoop(self.world, self.machine)
        self.loop.failures = self.failures
        self.store = SimulatedStore(self.world, self.machine, self.disk, self.loop)
        with Running(self.loop):
            self.service = self.serve()
            self.service.queued, self.service.world = self.queued, self.world
            self.service.begin()
        self.commands = WatchedCommands(self.failures)

    def serve(self) -> WatchedService:
        """The service. A broken server has another one."""
        return WatchedService(self.store, self.loop.loop, Limits(), Users(), ABOUT, self.failures.append)

    @property
    def rows(self) -> Dictionary:
        return self.service.table

    @property
    def unsynced(self) -> int:
        """How many batches its disk would forget now."""
        return len(self.disk.written)

    def now(self) -> float:
        return self.machine.now()

    def accept(self, cable: Cable) -> None:
        """A client connects."""
        self._cables.append(cable)
        protocol = Connection(self.service, self.commands)
        transport = ServerEnd(cable, self.loop, protocol)
        with Running(self.loop):
            protocol.connection_made(transport)

    def handle(self, request: Command, sender: object, answer: Answer) -> None:
        """Carry out what an operator asks for, and answer when it is kept."""
        self.loop.call_soon(self._carry_out, request, answer)

    def _carry_out(self, request: Command, answer: Answer) -> None:
        self.service.begin_turn()
        reply = self.service.step(request)
        self.service.batches.kept().add_done_callback(lambda _: answer(reply))

    def crash(self) -> None:
        """Lose the power: memory is gone, and so is what the disk had not synced."""
        self.machine.die()
        self.loop.end()
        self.disk.lose_power()
        for cable in self._cables:
            cable.server_died()
        self._cables.clear()

    def restart(self) -> None:
        """Come back."""
        self.machine.start()
        self.start()
        forget_unkept(self.queued, self.rows)


class SimulatedDesk(Desk):
    """A client's papers, with the time of its machine and the chances of the world."""

    machine: Machine

    def uniform(self, low: float, high: float) -> float:
        return self.machine.world.random.uniform(low, high)

    def now(self) -> float:
        return self.machine.now()

    def new_secret(self) -> str:
        return f"{self.machine.world.random.getrandbits(192):048x}"


class PortIo(NetworkIo):
    """Awaits a port in virtual time."""

    def __init__(self, network: Network, machine: Machine, server: LockServer, port: Port) -> None:
        super().__init__(network, machine, server)
        self._port = port

    async def call(self, request: Any, until: float) -> Any:
        return await self._port.call(request, until)


class SimulatedHoldfast(HoldfastEngine):
    """The engine of `holdfast://` over simulated connections, with the roles that they have beside a loop."""

    def __init__(self, simulation: ServerWorld, machine: Machine) -> None:
        self.simulation, self.machine = simulation, machine
        super().__init__(urls.parse(simulation.url), "holdfast")

    def _start(self) -> None:
        super()._start()
        self.desk = SimulatedDesk(self.address, self.route, self._deliver)
        self.desk.machine = self.machine

    def verbs(self) -> Verbs:
        network, server = self.simulation.network, self.simulation.server
        wire = SimulatedWire(network, self.machine, self.simulation.server_at, self.desk)
        role = () if self._claims is None else ("SIDE", "QUIET")
        port = Port(self.desk, wire, role, self._claims)
        self._claims = self._claims or port.call
        self._ports.append(port)
        io = PortIo(network, self.machine, server, port)
        return TableVerbs(io, io.signal())


class ServerWorld(Simulation):
    """The lock server instead of a bare lock table."""

    manager_class: type[Any] = LockServer
    server: LockServer
    url = "holdfast://manager"

    def server_at(self, address: Address) -> LockServer:
        """Who listens there."""
        return self.server

    def build(self, disk: Disk | None, manager_class: type[Any]) -> None:
        machine = self.machines[MANAGER] = Machine(self.world, MANAGER, self.rates.get(MANAGER, 1.0))
        self.manager = self.server = manager_class(self.network, machine, disk)

    def engine(self, machine: Machine) -> SimulatedHoldfast:
        return SimulatedHoldfast(self, machine)

    def session_id(self, who: str, number: int) -> str:
        return f"session_{who}_{number}"

    def close(self) -> None:
        """End the world. What failed inside the server is nobody's fault but ours."""
        super().close()
        self.server.loop.end()
        if self.server.failures:
            raise self.server.failures[0]
