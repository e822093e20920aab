"""Calls to an etcd cluster: one endpoint after the other, each with a short limit.

A call that failed may have been applied all the same, so what is sent here can be repeated: the
answer says whether it was. Nothing is known of locks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc

from holdfast.engines.etcd_address import Address
from holdfast.engines.etcd_messages import message
from holdfast.errors import EngineUnavailable, Outcome
from holdfast.runtime import clock

PER_CALL = 1.0
"""A call to a follower hangs for seconds after its leader has died: nobody waits for that."""
SHORTEST_CALL = 0.25
PAUSE = 0.05
"""Between rounds, when every endpoint refuses at once."""

TXN, RANGE = "KV/Txn", "KV/Range"
LEASE_GRANT, LEASE_REVOKE, LEASE_KEEP_ALIVE = "Lease/LeaseGrant", "Lease/LeaseRevoke", "Lease/LeaseKeepAlive"
WATCH = "Watch/Watch"
AUTHENTICATE, AUTH_STATUS = "Auth/Authenticate", "Auth/AuthStatus"
MEMBERS, STATUS, ALARM = "Cluster/MemberList", "Maintenance/Status", "Maintenance/Alarm"

_ANSWERS = {
    TXN: "TxnResponse",
    RANGE: "RangeResponse",
    LEASE_GRANT: "LeaseGrantResponse",
    LEASE_REVOKE: "LeaseRevokeResponse",
    # A stream in etcd's definition; one request and one answer are all of it here.
    LEASE_KEEP_ALIVE: "LeaseKeepAliveResponse",
    AUTHENTICATE: "AuthenticateResponse",
    AUTH_STATUS: "AuthStatusResponse",
    MEMBERS: "MemberListResponse",
    STATUS: "StatusResponse",
    ALARM: "AlarmResponse",
}
SERVICE = "/etcdserverpb."


class LeaseGone(Exception):
    """The lease that something was to be written under is over."""


class LeaseExists(Exception):
    """There is a lease of this number already."""


@dataclass(slots=True)
class Request:
    """One call. `repeats`: whether sending it twice does no harm. `together`: what it must not share a batch with."""

    method: str
    message: Any
    repeats: bool = True
    together: str | None = None


@dataclass(slots=True)
class Answer:
    """What came back. `repeated`: an earlier try of the same call may have been applied."""

    message: Any
    revision: int
    term: int
    repeated: bool = False


def serialize(request: Any) -> bytes:
    """A message as it is sent."""
    data: bytes = request.SerializeToString()
    return data


class Endpoint:
    """One member of the cluster."""

    def __init__(self, address: Address, target: str) -> None:
        self.target = target
        self.channel = address.channel(target)
        self._calls: dict[str, Any] = {}

    def method(self, name: str) -> Any:
        """What calls a method here."""
        found = self._calls.get(name)
        if found is None:
            answers = message(_ANSWERS[name]).FromString
            found = self._calls[name] = self.channel.unary_unary(SERVICE + name, serialize, answers)
        return found


class Wire:
    """The channels of one client, shared by its threads and tasks."""

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
        self._login = threading.Lock()

    def metadata(self, limit: float) -> tuple[tuple[str, str], ...]:
        """What goes with every call: the proof of who we are, fetched when it is first needed."""
        if not self.address.user:
            return ()
        with self._login:
            if self._token is None:
                self._token = self._authenticate(limit)
            return (("token", self._token),)

    def _authenticate(self, limit: float) -> str:
        request = message("AuthenticateRequest")(name=self.address.user, password=self.address.password)
        endpoint = self.endpoints[self.current % len(self.endpoints)]
        token: str = endpoint.method(AUTHENTICATE)(request, timeout=limit).token
        return token

    def forget_token(self) -> None:
        """It ran out, or the server was started again: fetch another one."""
        self._token = None

    def close(self) -> None:
        """Close every channel."""
        for endpoint in self.endpoints:
            endpoint.channel.close()


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

    def failed(self, error: Exception) -> float:
        """How long to wait before the next try; raises if there is none."""
        code, details = _code(error), _details(error)
        if code is grpc.StatusCode.NOT_FOUND and "lease" in details:
            raise LeaseGone from error
        if code is grpc.StatusCode.FAILED_PRECONDITION and "lease already exists" in details:
            raise LeaseExists from error
        if code is grpc.StatusCode.UNAUTHENTICATED and not self._renewed_login:
            self._renewed_login = True
            self.wire.forget_token()
            return 0.0
        if code is None:
            raise self.unavailable(details, "unknown") from error
        unsent = code is grpc.StatusCode.UNAVAILABLE and "connect" in details
        if code in _REFUSALS or (code is grpc.StatusCode.RESOURCE_EXHAUSTED and "space" in details):
            raise self.unavailable(details, self._outcome()) from error
        if not unsent:
            self.unknown = True
            if not self.request.repeats:
                raise self.unavailable(details or str(code), "unknown") from error
        self.at += 1
        if clock.now() + SHORTEST_CALL / 5 >= self.until:
            raise self.unavailable(details or str(code), self._outcome()) from error
        went_round = (self.at - self.first) % len(self.wire.endpoints) == 0
        return PAUSE if went_round and unsent else 0.0

    def _outcome(self) -> Outcome:
        return "unknown" if self.unknown else "not done"

    def unavailable(self, problem: str, outcome: Outcome) -> EngineUnavailable:
        """What the caller is told."""
        return EngineUnavailable(self.wire.address.shown, f"etcd did not answer: {problem}", outcome)


_REFUSALS = (
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.OUT_OF_RANGE,
)


def _code(error: Exception) -> Any:
    return error.code() if isinstance(error, grpc.RpcError) else None


def _details(error: Exception) -> str:
    return str(error.details() or "") if isinstance(error, grpc.RpcError) else str(error)


class EtcdPort:
    """Calls that block the thread."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    def call(self, request: Request, until: float) -> Answer:
        attempts = Attempts(self.wire, request, until)
        while True:
            endpoint, limit = attempts.next()
            try:
                metadata = self.wire.metadata(limit)
                reply = endpoint.method(request.method)(request.message, timeout=limit, metadata=metadata)
            except (grpc.RpcError, ValueError) as error:
                # ValueError: the channel was closed under it, by whoever closed the client.
                pause = attempts.failed(error)
                if pause:
                    time.sleep(pause)
                continue
            return attempts.done(reply)
