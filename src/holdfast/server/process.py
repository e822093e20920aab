"""The server's process: listens, reloads on SIGHUP, and ends in order on SIGTERM."""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import os
import secrets
import signal
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING

from holdfast.errors import EngineUnavailable, HoldfastError
from holdfast.server import descriptors, logs
from holdfast.server.addresses import Address
from holdfast.server.connection import Connection
from holdfast.server.dispatch import Commands
from holdfast.server.handshakes import Handshakes
from holdfast.server.http import MOST_HEAD, Http
from holdfast.server.listener import Listener, Speaker, bind
from holdfast.server.logins import Logins
from holdfast.server.service import About, Service
from holdfast.server.settings import Settings
from holdfast.server.store import Deposed, StoreBroken
from holdfast.server.stores import open_store
from holdfast.server.users import ANYBODY

if TYPE_CHECKING:
    from holdfast.server.cluster.node import Node

log = logging.getLogger("holdfast.server")

COME_BACK_MS = 1_000
"""When a client may try again after a stop."""
SMALL_TABLE = 10_000
"""Claims among which looking for garbage takes no time that anybody notices."""
LEAVE = 0.3
"""Seconds for clients to go by themselves when the server stops."""
LINGER = 2.0
"""Seconds for clients to take their last replies."""


class Process:
    """One server, from its first line of log to its last."""

    def __init__(self, settings: Settings, reread: Callable[[], Settings]) -> None:
        self.settings, self._reread = settings, reread
        self.loop = asyncio.get_running_loop()
        self.over: asyncio.Future[None] = self.loop.create_future()
        """Done when it is to stop; with an error if it has to."""
        self._failure: Exception | None = None
        self._contexts: list[ssl.SSLContext] = []
        self._vouchers = b"" if settings.tls is None else settings.tls.vouchers()
        self._listeners: list[Listener] = []
        self.addresses: list[str] = []
        """Where it listens."""
        store, scheme, durable = open_store(settings.store)
        about = About(version("holdfast"), secrets.token_hex(6), scheme, durable, scheme == "etcd")
        self.store = store
        self.service = Service(store, self.loop, settings.limits, settings.users, about, self._broken)
        self.logins = Logins(about.version)
        self.commands = Commands(self.logins)
        self.http: Http | None = None
        self.node = self._join()
        if self.node is None:
            self.service.begin()

    def _join(self) -> Node | None:
        """This server's part in a cluster, if there is one."""
        if not self.service.about.replicated:
            return None
        from holdfast.server.cluster.membership import Member
        from holdfast.server.cluster.node import Node
        from holdfast.server.cluster.store import ClusterStore

        assert isinstance(self.store, ClusterStore)
        about, settings = self.service.about, self.settings
        http = "" if settings.http is None else str(settings.http)
        started = round(time.time(), 3)
        member = Member(about.instance, str(settings.advertised), http, about.version, started)
        self.service.node = node = Node(self.store, self.service, member)
        return node

    async def run(self) -> None:
        """Serve until told to stop."""
        descriptors.raise_limit()
        descriptors.check_limit(self.settings.limits.connections)
        spare_the_collector()
        try:
            await self._listen()
            self.loop.add_signal_handler(signal.SIGTERM, self.stop)
            self.loop.add_signal_handler(signal.SIGINT, self.stop)
            self.loop.add_signal_handler(signal.SIGHUP, self.reload)
            about = self.service.about
            log.info(
                "listening",
                extra={
                    "addresses": self.addresses,
                    "http": None if self.settings.http is None else str(self.settings.http),
                    "store": self.store.address,
                    "durable": about.durable,
                    "tls": self.settings.tls is not None,
                    "users": len(self.settings.users.by_name),
                    "sessions": len(self.service.table.sessions),
                    "claims": len(self.service.table.rows),
                },
            )
            if not about.durable:
                log.warning("not durable: every lock is forgotten when this process ends")
            tasks = [self.loop.create_task(self._tick())]
            if self.node is not None:
                tasks.append(self.loop.create_task(self._take_part(self.node)))
            try:
                await self.over
                await self._stop()
            finally:
                for task in tasks:
                    task.cancel()
        finally:
            self._abort()
            if self.node is not None:
                self.node.close()
            self.store.close()

    async def _listen(self) -> None:
        settings, service = self.settings, self.service
        tls = self._context(with_clients=True)
        handshakes = Handshakes(lambda: service.limits.connections - len(service.connections), self.service.complaints)
        for address in settings.listen:
            await self._open(address, "--listen", self._connection, tls, handshakes)
        self.addresses = [listener.address for listener in self._listeners]
        if settings.http is not None:
            self.http = http = Http(service, self.logins, settings.hosts)
            tls = self._context(with_clients=False)
            handshakes = Handshakes(http.places, self.service.complaints)
            await self._open(settings.http, "--http", partial(self._request, http), tls, handshakes)

    async def _open(
        self, address: Address, option: str, speaker: Speaker, tls: ssl.SSLContext | None, handshakes: Handshakes
    ) -> None:
        with opening(address, option):
            wires = await bind(address)
        complaints = self.service.complaints
        self._listeners += [Listener(wire, speaker, tls, self._patience, handshakes, complaints) for wire in wires]

    def _patience(self) -> float:
        """Seconds for a handshake."""
        return self.service.limits.login / 1000

    def _context(self, with_clients: bool) -> ssl.SSLContext | None:
        if self.settings.tls is None:
            return None
        context = self.settings.tls.context(with_clients)
        self._contexts.append(context)
        return context

    def _connection(self) -> Connection:
        return Connection(self.service, self.commands)

    def _request(self, http: Http) -> asyncio.StreamReaderProtocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(MOST_HEAD, self.loop), http.serve, self.loop)

    async def _take_part(self, node: Node) -> None:
        try:
            await node.run()
        except Exception as error:  # noqa: BLE001  whatever it was, a server that is in no cluster is of no use
            self._broken(error)

    async def _tick(self) -> None:
        """Once a second, close connections that say nothing, do not log in, or do not read; and look around."""
        for second in itertools.count(1):
            await asyncio.sleep(1.0)
            self._close_silent()
            self.service.unread.look()
            self.service.complaints.second_over()
            self.logins.failures.second_over()
            self._look_for_room()
            table = self.service.table
            if second % 60 == 0 and len(table.rows) + table.mail.count < SMALL_TABLE:
                gc.collect()

    def _close_silent(self) -> None:
        limits, now = self.service.limits, self.loop.time()
        for one in list(self.service.connections):
            if one.allowed is self.commands.before_login and now - one.unknown_since > limits.login / 1000:
                reason = "no login"
            elif limits.idle and now - one.heard > limits.idle / 1000 and not one.held:
                reason = "idle"
            elif one.closed_at is not None and now - one.closed_at > LINGER:
                reason = "does not take its last replies"
            else:
                continue
            self.service.complaints.add("connection closed", logging.INFO, peer=one.peer, reason=reason)
            one.abort()

    def _look_for_room(self) -> None:
        """A disk that has room again is noticed even if nobody asks for any."""
        try:
            self.store.has_room()
        except StoreBroken as error:
            self._broken(error)

    def stop(self) -> None:
        """Stop in order."""
        if not self.over.done():
            self.over.set_result(None)

    def _broken(self, error: Exception) -> None:
        """The store or the table cannot be trusted any more: answer nobody, end. Who was deposed goes on following."""
        if isinstance(error, Deposed) and self.node is not None:
            self.node.deposed(error)
            return
        log.critical("not to be trusted any more, stopping", extra={"problem": str(error)}, exc_info=error)
        self._abort()
        self._failure = error
        if not self.over.done():
            self.over.set_exception(error)

    def reload(self) -> None:
        """Take over what the configuration says now: users, limits, certificates, the log."""
        try:
            new = self._reread()
            new.in_place_of(self.settings)
            changed = new.needs_restart(self.settings)
            if not self.settings.vouching:
                # Whether certificates are asked for changes with the next start only.
                new.users.check_without_certificates()
            if new.tls is not None and self.settings.tls is not None:
                new.tls.context()
                if "tls.client_ca" not in changed and new.tls.vouchers() != self._vouchers:
                    # A context can learn of further authorities, and cannot forget one.
                    changed.append("tls.client_ca")
                for context in self._contexts:
                    new.tls.load(context)
        except HoldfastError as error:
            log.error("configuration not reloaded", extra={"problem": str(error)})
            return
        for name in changed:
            log.warning("a changed setting needs a restart", extra={"setting": name})
        logs.set_up(new.log_format, new.log_level)
        descriptors.check_limit(new.limits.connections)
        self.service.set_rules(new.limits, new.users)
        if self.http is not None:
            self.http.hosts = replace(new, http=self.settings.http, advertise=self.settings.advertise).hosts
        for one in list(self.service.connections):
            one.bound_frames()
            if one.allowed is self.commands.before_login and new.users.required:
                # It has yet to say who it is, and is judged by the users of that moment.
                continue
            user = new.users.by_name.get(one.user.name)
            if user is not None and user.password == one.user.password and user.certificate == one.user.certificate:
                one.user = user
            elif one.user is not ANYBODY or new.users.required:
                # Its user is gone or has another password now, or whether one has to log in has changed.
                one.abort()
        log.info("configuration reloaded", extra={"users": len(new.users.by_name)})

    async def _stop(self) -> None:
        """Finish what was begun, tell clients to come back, and let them take their replies.

        Raises what went wrong meanwhile.
        """
        log.info("stopping")
        for listener in self._listeners:
            listener.close()
        self.service.stop(COME_BACK_MS)
        await self.service.batches.finish()
        if self.node is not None:
            await self.node.resign()
        # Who was told to go does so, and loses nothing that was on its way here; then the rest.
        await self._emptied(LEAVE)
        for one in list(self.service.connections):
            one.close_after_output()
        await self._emptied(LINGER)
        if self._failure is not None:
            raise self._failure
        log.info("stopped")

    async def _emptied(self, within: float) -> None:
        """Wait until the last connection has ended, for so long."""
        if self.service.connections:
            self.service.alone = asyncio.Event()
            waiting = self.loop.create_task(self.service.alone.wait())
            await asyncio.wait([waiting], timeout=within)
            waiting.cancel()

    def _abort(self) -> None:
        for listener in self._listeners:
            listener.close()
        for one in list(self.service.connections):
            one.abort()
        self.logins.close()


def spare_the_collector() -> None:
    """Let Python look for garbage among what is new only, by itself.

    A look at a table of a million locks takes a second, in which nobody is answered, and finds nothing: rows are
    in no cycles. What little else there is, `_tick` collects while the table is small.
    """
    gc.freeze()
    # The second generation is what the first collections left: 30,000 objects take 10 ms, 100,000 take 30 ms.
    # From Python 3.14 on this number says how little of all other objects is looked at each time.
    second = 3 if sys.version_info < (3, 14) else 10
    gc.set_threshold(10_000, second, 1_000_000_000)


@contextmanager
def opening(address: Address, option: str) -> Iterator[None]:
    """Listening there; what the operating system has against it is told with the address and what to do."""
    try:
        yield
    except OSError as error:
        # uvloop and asyncio put the address into a sentence of their own.
        why = os.strerror(error.errno) if error.errno is not None and error.errno > 0 else str(error.strerror)
        problem = f"it cannot listen there: {why}; stop what has that address, or choose another by {option}"
        raise EngineUnavailable(str(address), problem, "not done") from error


async def serve(settings: Settings, reread: Callable[[], Settings]) -> None:
    """Run a server until it is told to stop; raises what made it stop by itself."""
    await Process(settings, reread).run()
