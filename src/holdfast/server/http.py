"""HTTP beside the wire: health, metrics, and the locks as JSON. Read only."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import parse_qs, quote, urlsplit

from holdfast.core.names import check_prefix
from holdfast.errors import InvalidRequest
from holdfast.server import grammar, listing
from holdfast.server.addresses import Address
from holdfast.server.http_hosts import Hosts
from holdfast.server.logins import Logins
from holdfast.server.metrics import Metrics
from holdfast.server.people_commands import USUAL
from holdfast.server.service import Service
from holdfast.server.users import User
from holdfast.server.wire_error import WireError

log = logging.getLogger("holdfast.server")

LOCKS = ("prefix", "kind", "limit", "cursor")
"""What /v1/locks may be asked for."""
MOST_HEAD = 8_192
MOST_CONNECTIONS = 220
MOST_BUSY = 200
"""Requests that have arrived and are not answered: while there are more, only health is answered."""
HEALTH = ("/healthz", "/readyz")
"""What tells nothing of locks: answered by any name, because load balancers send their own, and without a login."""
WITHIN = 10.0
"""Seconds for a request to arrive and its answer to be taken."""
REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    421: "Misdirected Request",
    503: "Service Unavailable",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request gets."""

    status: int
    body: bytes
    form: str = "text/plain; charset=utf-8"
    extra: str = ""

    def packed(self, with_body: bool) -> bytes:
        head = (
            f"HTTP/1.1 {self.status} {REASONS[self.status]}\r\nContent-Type: {self.form}\r\n"
            f"Content-Length: {len(self.body)}\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
            f"Connection: close\r\n{self.extra}\r\n"
        )
        return head.encode() + (self.body if with_body else b"")


def plain(status: int, text: str) -> Answer:
    return Answer(status, text.encode() + b"\n")


def as_json(value: object) -> Answer:
    return Answer(200, json.dumps(value).encode() + b"\n", "application/json")


CROWDED = plain(503, "too many connections")
LOG_IN = Answer(401, b"log in first\n", extra='WWW-Authenticate: Basic realm="holdfast"\r\n')


class Turn:
    """A request that shows much: it stands in line with those of connections."""

    def __init__(self, user: User, make: Callable[[], Answer]) -> None:
        self.user, self._make = user, make
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def work(self) -> None:
        """Make the answer, if somebody still waits for it."""
        if self.answer.done():
            return
        try:
            self.answer.set_result(self._make())
        except Exception as error:  # noqa: BLE001  told to whoever asked
            self.answer.set_exception(error)


class Http:
    """Answers one request a connection."""

    def __init__(self, service: Service, logins: Logins, hosts: Hosts) -> None:
        self.service, self.logins, self.hosts = service, logins, hosts
        self.metrics = Metrics(service)
        self._unread = 0
        """Bytes of answers that were not taken yet."""
        self._connections: set[asyncio.StreamWriter] = set()
        self._silent: dict[asyncio.StreamWriter, None] = {}
        """Those whose request has not arrived, the oldest first."""

    def places(self) -> int:
        """How many connections there may be beside those that there are."""
        return MOST_CONNECTIONS - len(self._connections)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, from its first byte to its last."""
        if not self.places() and not self._close_oldest_silent():
            writer.write(CROWDED.packed(True))
            writer.close()
            return
        self._connections.add(writer)
        self._silent[writer] = None
        try:
            async with asyncio.timeout(WITHIN):
                answer, with_body = await self._converse(reader, writer)
                await self._hand_over(writer, answer.packed(with_body))
        except TimeoutError:
            log.debug("http request not finished", extra={"problem": f"it took longer than {WITHIN:g} s"})
            # Closing would wait for a client that takes nothing, and keep what it does not take.
            writer.transport.abort()
        except (ConnectionError, asyncio.IncompleteReadError) as error:
            log.debug("http request not finished", extra={"problem": repr(error)})
        except Exception:
            log.exception("http request failed")
        finally:
            self._forget(writer)
            writer.close()

    def _close_oldest_silent(self) -> bool:
        """Make room: close the connection that has waited longest without a request; False if there is none."""
        oldest = next(iter(self._silent), None)
        if oldest is None:
            return False
        self._forget(oldest)
        oldest.transport.abort()
        return True

    def _forget(self, writer: asyncio.StreamWriter) -> None:
        self._connections.discard(writer)
        self._silent.pop(writer, None)

    async def _hand_over(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        """Write an answer; done when all of it is with the kernel, so that nothing is left to whoever does not read."""
        if self._unread and self._unread + len(data) > self.service.limits.total_output // 4:
            data = plain(503, "too many answers are not read").packed(True)
        self._unread += len(data)
        try:
            writer.transport.set_write_buffer_limits(0)
            writer.write(data)
            await writer.drain()
        finally:
            self._unread -= len(data)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[Answer, bool]:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.LimitOverrunError:
            return plain(400, f"a request has at most {MOST_HEAD} bytes before its body"), True
        self._silent.pop(writer, None)
        first, *lines = head.split("\r\n")
        parts = first.split(" ")
        if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
            return plain(400, "this is HTTP/1.1"), True
        method, target, _ = parts
        if method not in ("GET", "HEAD"):
            return plain(405, "this is read only"), True
        headers = [(key.strip().lower(), value.strip()) for key, _, value in (line.partition(":") for line in lines)]
        refusal = self._refusal(target, [value for key, value in headers if key == "host"])
        if refusal is not None:
            return refusal, method == "GET"
        peer = writer.get_extra_info("peername")
        shown = str(Address(*peer[:2])) if peer else "?"
        return await self._answer(target, dict(headers).get("authorization", ""), shown), method == "GET"

    def _refusal(self, target: str, hosts: list[str]) -> Answer | None:
        """Why the request is not answered at all; None if it is."""
        if target.partition("?")[0] in HEALTH:
            return None
        if len(self._connections) - len(self._silent) > MOST_BUSY:
            return CROWDED
        if len(hosts) > 1:
            return plain(400, "a request is for one host")
        wrong = next((host for host in hosts if not self.hosts.allow(host)), None)
        if wrong is None:
            return None
        return plain(
            421,
            f"this server does not answer for the host {wrong[:100]!r}: http_hosts in its configuration says for which",
        )

    async def _answer(self, target: str, authorization: str, peer: str) -> Answer:
        try:
            url = urlsplit(target)
        except ValueError as error:
            return plain(400, str(error))
        service = self.service
        if url.path == "/healthz":
            return plain(200, "alive")
        if url.path == "/readyz":
            return self._readiness()
        if url.path not in ("/metrics", "/v1/locks"):
            return plain(404, "there are /healthz, /readyz, /metrics and /v1/locks")
        user = service.users.at_first
        if service.users.required:
            try:
                found = await self._user(authorization, peer)
            except WireError as error:
                return plain(503, error.text)
            if found is None:
                return LOG_IN
            user = found
        if url.path == "/metrics":
            return Answer(200, self.metrics.page(), "text/plain; version=0.0.4; charset=utf-8")
        turn = Turn(user, partial(self._locks, user, parse_qs(url.query)))
        service.held_back.add(turn)
        answer = await turn.answer
        return answer if await service.batches.kept() else plain(503, "it was not kept")

    def _readiness(self) -> Answer:
        """Whether it takes every kind of command now."""
        node = self.service.node
        if self.service.stopping:
            return plain(503, "stopping")
        if node is not None and not node.store.leads:
            return plain(200, f"following {node.leader['advertise']}") if node.leader else plain(503, "nobody leads")
        if not self.service.store.has_room():
            return plain(503, "the disk is full: only what frees room is taken")
        return plain(200, "ready")

    async def _user(self, authorization: str, peer: str) -> User | None:
        """Who the header says it is, if the password is right. WireError if it cannot be checked now."""
        scheme, _, encoded = authorization.partition(" ")
        if scheme.lower() != "basic":
            return None
        try:
            name, _, password = base64.b64decode(encoded, validate=True).decode().partition(":")
        except ValueError:
            return None
        return await self.logins.check(self.service, name, password.encode(), peer)

    def _locks(self, user: User, query: dict[str, list[str]]) -> Answer:
        """Locks in use that the user may read: ?prefix=db/&kind=holdfast.lock&limit=100&cursor=…"""
        service = self.service
        if service.elsewhere is not None:
            return plain(503, service.elsewhere.text)
        unknown = query.keys() - LOCKS
        if unknown:
            return plain(400, f"unknown parameter {min(unknown)!r}: there are {', '.join(LOCKS)}")
        try:
            prefix = check_prefix(query.get("prefix", [""])[0])
            kind = grammar.kinds(query.get("kind", [grammar.NAMESPACE])[0].encode(), service.limits)
            most = grammar.positive(query.get("limit", [str(USUAL)])[0].encode())
            after = grammar.cursor(query["cursor"][0].encode(), service.limits) if "cursor" in query else ("", "")
        except (InvalidRequest, WireError) as error:
            return plain(400, str(error))
        most = min(most, service.limits.list)
        service.begin_turn()
        service.is_spent = True
        page = listing.locks_under(service, user, prefix, kind, most, after)
        answer = as_json([info.as_dict() for info in page.locks])
        if page.cursor is None:
            return answer
        return replace(answer, extra=f"Holdfast-Cursor: {quote(' '.join(page.cursor))}\r\n")
