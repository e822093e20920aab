"""Calls to an etcd cluster: one endpoint after the other, each with a short limit.

A call that failed may have been applied all the same, so what is sent here can be repeated: the
answer says whether it was. Nothing is known of locks.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.engines.etcd.address import Address
from holdfast.engines.etcd.http2 import DEADLINE_EXCEEDED, UNAVAILABLE, CallFailed
from holdfast.engines.etcd.messages import message
from holdfast.engines.etcd.sockets import Connection
from holdfast.errors import EngineFailure, Outcome
from holdfast.runtime import clock
from holdfast.runtime.call_pool import CallPool
from holdfast.runtime.calls import UNDER_WAY

PER_CALL = 1.0
"""A call to a follower hangs for seconds after its leader has died: nobody waits for that."""
SHORTEST_CALL = 0.25
PAUSE = 0.05
"""Between rounds, when every endpoint refuses at once."""

TXN, RANGE = "KV/Txn", "KV/Range"
LEASE_GRANT, LEASE_REVOKE, LEASE_KEEP_ALIVE = "Lease/LeaseGrant", "Lease/LeaseRevoke", "Lease/LeaseKeepAlive"
LEASE_TIME_TO_LIVE = "Lease/LeaseTimeToLive"
WATCH = "Watch/Watch"
COMPACT = "KV/Compact"
AUTHENTICATE, AUTH_STATUS = "Auth/Authenticate", "Auth/AuthStatus"
MEMBERS, STATUS, ALARM = "Cluster/MemberList", "Maintenance/Status", "Maintenance/Alarm"

_ANSWERS = {
    TXN: "TxnResponse",
    RANGE: "RangeResponse",
    COMPACT: "CompactionResponse",
    LEASE_GRANT: "LeaseGrantResponse",
    LEASE_REVOKE: "LeaseRevokeResponse",
    # A stream in etcd's definition; one request and one answer are all of it here.
    LEASE_KEEP_ALIVE: "LeaseKeepAliveResponse",
    LEASE_TIME_TO_LIVE: "LeaseTimeToLiveResponse",
    AUTHENTICATE: "AuthenticateResponse",
    AUTH_STATUS: "AuthStatusResponse",
    MEMBERS: "MemberListResponse",
    STATUS: "StatusResponse",
    ALARM: "AlarmResponse",
}
_DECODERS = {method: message(name).FromString for method, name in _ANSWERS.items()}
SERVICE = "/etcdserverpb."

CLOSED = -1
"""Nobody's status but ours: the client was closed."""
NOT_FOUND, FAILED_PRECONDITION, UNAUTHENTICATED, RESOURCE_EXHAUSTED = 5, 9, 16, 8
# An invalid argument, no right to do it, a precondition, out of range, not implemented, and who we are not.
REFUSALS = (3, 7, 9, 11, 12, 16)


class LeaseGone(Exception):
    """The lease that something was to be written under is over. `repeated`: as of an answer."""

    def __init__(self, repeated: bool = False) -> None:
        self.repeated = repeated
        super().__init__()


class LeaseExists(Exception):
    """There is a lease of this number already."""


class Full(EngineFailure):
    """etcd answered that it has no space. It may have applied the request all the same.

    Below its quota, etcd applies the transaction that crosses the quota and then answers it with this
    error. `repeated`: an earlier try of the request is unanswered.
    """

    def __init__(self, engine: str, problem: str, repeated: bool) -> None:
        self.repeated = repeated
        super().__init__(engine, problem, "unknown")


class Crowded(EngineFailure):
    """It was not sent in time: other requests of this client went first, and etcd answers them."""

    def __init__(self, engine: str) -> None:
        super().__init__(engine, "other requests of this client went first", "not done")


@dataclass(slots=True)
class Request:
    """One call. `repeats`: whether sending it twice does no harm. `together`: what it must not share a batch with.

    `changes`: whether it can change what is kept in etcd. A bare lease changes nothing: it ends by itself.
    `alike`: requests of one kind may share a batch in spite of `together`: none of them reads what another writes.
    `urgent`: it goes before others: callers wait for what it ends or takes.
    """

    method: str
    message: Any
    repeats: bool = True
    together: str | None = None
    changes: bool = True
    alike: str = ""
    urgent: bool = False


@dataclass(slots=True)
class Answer:
    """What came back. `repeated`: an earlier try of the same call may have been applied."""

    message: Any
    revision: int
    term: int
    repeated: bool = False


def serialize(request: Any) -> bytes:
    """A message as it is sent, if it is not that already."""
    data: bytes = request if type(request) is bytes else request.SerializeToString()
    return data


def decode(method: str, data: bytes) -> Any:
    """What a method has answered."""
    return _DECODERS[method](data)


class Endpoint:
    """One member of the cluster."""

    def __init__(self, address: Address, target: str) -> None:
        self.address, self.target = address, target
        self._idle: list[Connection] = []
        self._closed = False

    def exchange(self, name: str, request: Any, token: str, limit: float) -> Any:
        """Call a method and wait for its answer, on a connection that nobody else uses meanwhile."""
        until = clock.now() + limit
        connection = self._take(until)
        try:
            data = connection.call(SERVICE + name, serialize(request), token, until)
        except CallFailed as failure:
            # An error that the server has told leaves the connection as it was.
            if failure.code in (UNAVAILABLE, DEADLINE_EXCEEDED):
                connection.close()
            else:
                self._give(connection)
            raise
        except BaseException:
            connection.close()
            raise
        self._give(connection)
        return decode(name, data)

    def _take(self, until: float) -> Connection:
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:
                break  # another thread was faster
            if connection.usable:
                return connection
            connection.close()
        if self._closed:
            raise CallFailed(CLOSED, "the client was closed", sent=False)
        return Connection(self.address, self.target, until)

    def _give(self, connection: Connection) -> None:
        if self._closed:
            connection.close()
        else:
            self._idle.append(connection)

    def close(self) -> None:
        """Close every connection, without a word: a fork does the same to its copies."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()


class Wire:
    """The ways of one client to its cluster, shared by its threads and tasks."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.endpoints = [Endpoint(address, target) for target in address.endpoints]
        self.current = 0
        """Which endpoint answered last: every call starts there."""
        self.counted: Callable[[str], None] | None = None
        """Told of every request that is sent: benchmarks count them."""
        self.moved: Callable[[], None] | None = None
        """Called when another endpoint has to be used from now on."""
        self._token: str | None = None
        self._login: CallPool[None] = CallPool(1, lambda _: None)
        """The permission to sign in. A call that was interrupted while it had it loses it to the next one."""

    @property
    def known_token(self) -> str | None:
        """What goes with every call: the proof of who we are, empty without a user; None if it has to be fetched."""
        return self._token if self.address.user else ""

    def token(self, limit: float) -> str:
        """The same, fetched when it is first needed."""
        if not self.address.user:
            return ""
        until = clock.now() + limit
        # One signs in for all; but each waits for that no longer than it may.
        turn = self._login.take(until)
        if turn is None and self._login.items[0].is_lent_here:
            raise CallFailed(CLOSED, UNDER_WAY, sent=False)
        if turn is None:
            raise CallFailed(DEADLINE_EXCEEDED, "others are still signing in", sent=False)
        try:
            if self._token is None:
                self._token = self._authenticate(until)
            return self._token
        finally:
            self._login.give(turn)

    def _authenticate(self, until: float) -> str:
        """Sign in at whichever endpoint is there: the token is good at all of them."""
        request = message("AuthenticateRequest")(name=self.address.user, password=self.address.password)
        first, count = self.current, len(self.endpoints)
        for at in range(first, first + count):
            # One that is silent leaves time for the next.
            left = max(0.01, until - clock.now()) / (1 if at == first + count - 1 else 2)
            try:
                token: str = self.endpoints[at % count].exchange(AUTHENTICATE, request, "", left).token
            except CallFailed as error:
                if error.code not in (UNAVAILABLE, DEADLINE_EXCEEDED) or at == first + count - 1:
                    # Nothing of what the token was for was sent.
                    raise CallFailed(error.code, error.details, sent=False) from error
            else:
                return token
        raise AssertionError("there is an endpoint")

    def forget_token(self, refused: str | None = None) -> None:
        """It ran out, or the server was started again: fetch another one. Only if it is `refused`, where that is told.

        Another thread may have fetched a new one meanwhile.
        """
        if refused is None or refused == self._token:
            self._token = None

    def close(self) -> None:
        """Close every connection."""
        for endpoint in self.endpoints:
            endpoint.close()


class Attempts:
    """The tries of one call: where the next one goes, for how long, and what a failure means."""

    def __init__(self, wire: Wire, request: Request, until: float) -> None:
        self.wire, self.request, self.until = wire, request, until
        self.first = self.at = wire.current
        self.tries = 0
        self.unknown = False
        """Whether one of them may have been applied."""
        self._renewed_login = False

    def next(self) -> tuple[Endpoint, float]:
        """Where to send it now, and for how many seconds."""
        left = self.until - clock.now()
        several = len(self.wire.endpoints) > 1
        limit = min(PER_CALL, max(left / 2, SHORTEST_CALL)) if several else PER_CALL
        self.tries += 1
        if self.wire.counted is not None:
            self.wire.counted(self.request.method)
        return self.wire.endpoints[self.at % len(self.wire.endpoints)], max(0.01, min(limit, left))

    def done(self, reply: Any) -> Answer:
        """It was answered."""
        if self.at != self.first:
            self.wire.current = self.at % len(self.wire.endpoints)
            if self.wire.moved is not None:
                self.wire.moved()
        header = reply.header
        return Answer(reply, header.revision, header.raft_term, self.unknown)

    def failed(self, error: CallFailed) -> float:
        """How long to wait before the next try; raises if there is none."""
        code, details = error.code, error.details
        if code == NOT_FOUND and "lease" in details:
            raise LeaseGone(self.unknown) from error
        if code == FAILED_PRECONDITION and "lease already exists" in details:
            raise LeaseExists from error
        # The second is said when users or rights have changed since the token was given.
        outdated = code == UNAUTHENTICATED or "auth store is old" in details
        if outdated and not self._renewed_login:
            self._renewed_login = True
            self.wire.forget_token()
            return 0.0
        if code == RESOURCE_EXHAUSTED and "space" in details:
            raise Full(self.wire.address.shown, f"etcd has no space left: {details}", self.unknown) from error
        if code in REFUSALS:
            raise self.unavailable(details, self._outcome()) from error
        if error.sent:
            self.unknown = True
            if not self.request.repeats:
                raise self.unavailable(details, "unknown") from error
        self.at += 1
        if code == CLOSED or clock.now() + SHORTEST_CALL / 5 >= self.until:
            raise self.unavailable(details, self._outcome()) from error
        went_round = (self.at - self.first) % len(self.wire.endpoints) == 0
        return PAUSE if went_round and code == UNAVAILABLE else 0.0

    def _outcome(self) -> Outcome:
        return "unknown" if self.unknown else "not done"

    def unavailable(self, problem: str, outcome: Outcome) -> EngineFailure:
        """What the caller is told."""
        return EngineFailure(self.wire.address.shown, f"etcd did not answer: {problem}", outcome)


class EtcdPort:
    """Calls that block the thread."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    def call(self, request: Request, until: float) -> Answer:
        attempts = Attempts(self.wire, request, until)
        while True:
            endpoint, limit = attempts.next()
            by = clock.now() + limit
            try:
                token = self.wire.token(limit)
                reply = endpoint.exchange(request.method, request.message, token, max(0.01, by - clock.now()))
            except CallFailed as error:
                pause = attempts.failed(error)
                if pause:
                    time.sleep(pause)
                continue
            return attempts.done(reply)
