"""Who a connection speaks as: AUTH, HELLO, and client certificates."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from holdfast.server.frames import Frame
from holdfast.server.grammar import expect
from holdfast.server.password_checks import Failures, PasswordChecks, network_of
from holdfast.server.redis_commands import client_name
from holdfast.server.resp import OK, RESP2, RESP3
from holdfast.server.users import User
from holdfast.server.wire_error import LimitReached, WireError

if TYPE_CHECKING:
    from holdfast.server.connection import Connection
    from holdfast.server.service import Service

log = logging.getLogger("holdfast.server")

DEFAULT = "default"
WRONG = WireError("WRONGPASS", "invalid username-password pair or user is disabled.")
MOST_WRONG = 3
"""Wrong passwords over one connection; then it is closed."""


class Logins:
    """Who a connection may speak as. The answer to a wrong password is delayed, that to a right one never."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.checks, self.failures = PasswordChecks(), Failures()
        self._delayed = 0

    @property
    def count(self) -> int:
        """Logins that are not answered yet."""
        return self.checks.count + self._delayed

    def close(self) -> None:
        self.checks.close()

    def auth(self, connection: Connection, frame: Frame) -> bytes | None:
        """AUTH [user] password."""
        expect(frame, 2, 3)
        user = frame[1].decode() if len(frame) == 3 else DEFAULT
        return self._log_in(connection, user, frame[-1], hello=False)

    def hello(self, connection: Connection, frame: Frame) -> bytes | None:
        """HELLO [2 or 3] [AUTH user password] [SETNAME name]."""
        version, login, name, at = connection.resp.version, None, None, 2
        if len(frame) > 1:
            if frame[1] not in (b"2", b"3"):
                raise WireError("NOPROTO", "unsupported protocol version")
            version = int(frame[1])
        while at < len(frame):
            word = frame[at].upper()
            if word == b"AUTH" and at + 2 < len(frame):
                login, at = (frame[at + 1].decode(), frame[at + 2]), at + 3
            elif word == b"SETNAME" and at + 1 < len(frame):
                name, at = client_name(frame[at + 1]), at + 2
            else:
                raise WireError("ERR", "Syntax error in HELLO option")
        if login is None and connection.allowed is connection.commands.before_login:
            raise WireError("NOAUTH", "HELLO must be called with the client already authenticated, or with AUTH")
        if name is not None:
            connection.name = name
        if login is not None:
            connection.proposed = RESP3 if version == 3 else RESP2
            return self._log_in(connection, *login, hello=True)
        connection.resp = RESP3 if version == 3 else RESP2
        return self.greeting(connection)

    def greeting(self, connection: Connection) -> bytes:
        """What HELLO answers."""
        return connection.resp.encode({
            "server": "holdfast", "version": self.version, "proto": connection.resp.version, "id": connection.id,
            "mode": "standalone", "role": "master", "modules": [],
        })  # fmt: skip

    def by_certificate(self, connection: Connection, tls: Any) -> None:
        """Log in whoever the connection's certificate names, if there is such a user."""
        certificate = tls.getpeercert() or {}
        names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
        for name in names:
            user = connection.service.users.by_certificate.get(name)
            if user is not None:
                self._enter(connection, user)

    def _enter(self, connection: Connection, user: User) -> None:
        service = connection.service
        others = sum(one.user.name == user.name for one in service.connections if one is not connection)
        if others >= service.limits.connections_per_user:
            raise LimitReached("connections_per_user", service.limits.connections_per_user, "close some first")
        connection.user = user
        connection.logged_in()

    def _log_in(self, connection: Connection, name: str, password: bytes, hello: bool) -> bytes | None:
        users = connection.service.users
        if not users.required:
            if hello and name == DEFAULT:
                connection.resp = connection.proposed
                return self.greeting(connection)
            raise WireError("ERR", "AUTH called without any password configured for the default user.")
        user = users.by_name.get(name)
        protected = "" if user is None else user.password
        known = self.checks.known(name, password, protected)
        if known and user is not None:
            return self._entered(connection, user, hello)
        connection.hold()
        if known is None:
            peer = network_of(connection.peer)
            work = self.checks.begin(peer, name, password, protected, lambda: not connection.closing)
            work.add_done_callback(lambda done: self._checked(done, connection, name, protected, hello))
        else:
            self._refuse(connection, name)
        return None

    def _checked(
        self, done: asyncio.Future[bool], connection: Connection, name: str, protected: str, hello: bool
    ) -> None:
        """A password was checked. Nothing counts that changed meanwhile."""
        failure = None if done.cancelled() else done.exception()
        if done.cancelled() or connection.closing or connection.service.stopping:
            # Who waits while the server stops was answered by that.
            return
        if isinstance(failure, WireError):
            connection.answer(connection.error(failure))
            return
        user = connection.service.users.by_name.get(name)
        if failure is not None:
            log.error("password not checked", extra={"user": name[:100], "problem": str(failure)})
        if failure is None and done.result() and user is not None and user.password == protected:
            try:
                connection.answer(self._entered(connection, user, hello))
            except WireError as problem:
                connection.answer(connection.error(problem))
        else:
            self._refuse(connection, name)

    def _refuse(self, connection: Connection, name: str) -> None:
        """The password is wrong: say so after a while."""
        delay = self._count_failure(connection.service, name, connection.peer)
        self._delayed += 1
        connection.service.loop.call_later(delay, self._answer_refused, connection)

    def _answer_refused(self, connection: Connection) -> None:
        self._delayed -= 1
        if connection.closing or connection.service.stopping:
            return
        connection.answer(connection.error(WRONG))
        connection.wrong_passwords += 1
        if connection.wrong_passwords >= MOST_WRONG:
            connection.close_after_output()

    def _count_failure(self, service: Service, name: str, peer: str) -> float:
        """Count a wrong password, and tell the log of it; the seconds until it is answered."""
        service.tally.logins_refused += 1
        service.complaints.add("login refused", peer=peer, user=name[:100])
        return self.failures.add(network_of(peer))

    async def check(self, service: Service, name: str, password: bytes, peer: str) -> User | None:
        """The user of this name, if this is the password. WireError if too many are being checked."""
        user = service.users.by_name.get(name)
        protected = "" if user is None else user.password
        right = self.checks.known(name, password, protected)
        if right is None:
            right = await self.checks.begin(network_of(peer), name, password, protected, lambda: True)
        user = service.users.by_name.get(name)
        if right and user is not None and user.password == protected:
            return user
        await asyncio.sleep(self._count_failure(service, name, peer))
        return None

    def _entered(self, connection: Connection, user: User, hello: bool) -> bytes:
        self._enter(connection, user)
        if not hello:
            return OK
        connection.resp = connection.proposed
        return self.greeting(connection)
