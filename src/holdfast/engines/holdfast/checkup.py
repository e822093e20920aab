"""What `doctor` looks at in a lock server."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from holdfast.engines.checkup import Finding
from holdfast.engines.holdfast.line import Line
from holdfast.engines.holdfast.route import PROTO, Route
from holdfast.engines.holdfast.words import told
from holdfast.engines.resp.wire import Lost
from holdfast.errors import EngineUnavailable
from holdfast.runtime import clock

LIMIT = 5.0
SLOW = 0.05
"""A round trip from which on heartbeats and hand-offs are felt."""


def check_up(address: str, route: Route) -> list[Finding]:
    """Ask the server what it is. One that the client would refuse is looked at all the same."""
    lenient = replace(route, durable=False, addresses=route.addresses[:1])
    until = clock.now() + LIMIT
    try:
        line = Line(lenient.addresses[0], lenient, lambda push: None, until)
        try:
            server: dict[bytes, Any] = line.call(told("HF.HELLO", f"proto={PROTO}"), until)
            info: Any = line.call(told("INFO"), until)
            began = time.perf_counter()
            line.call(told("PING"), until)
            took = time.perf_counter() - began
        finally:
            line.end("it was looked at")
    except Lost as lost:
        raise EngineUnavailable(address, lost.problem, "not done") from lost
    return [
        _version(server),
        _durability(server),
        _replication(server, route),
        _access(route),
        _round_trip(took),
        _use(info),
    ]


def _version(server: dict[bytes, Any]) -> Finding:
    return Finding("version", "good", f"{server[b'version'].decode()}, protocol {server[b'proto']}")


def _durability(server: dict[bytes, Any]) -> Finding:
    store = server[b"store"].decode()
    if server[b"durable"]:
        return Finding("store", "good", f"{store}: on disk before it is answered")
    consequence = "Every lock is forgotten when the server ends: one may be given twice, with a higher token."
    return Finding("store", "danger", f"{store}: nothing on disk", consequence, "holdfast serve --store sqlite:///path")


def _replication(server: dict[bytes, Any], route: Route) -> Finding:
    if server[b"replicated"]:
        return Finding("replication", "good", "replicated")
    consequence = "While it is away nothing is granted, and holders lose their locks after a ttl."
    if route.replicated:
        return Finding("replication", "danger", "one server", consequence, "Name one server in the URL.")
    return Finding("replication", "warning", "one server", consequence)


def _access(route: Route) -> Finding:
    host = route.addresses[0].host
    local = host in ("localhost", "::1") or host.startswith("127.")
    how = (
        ", ".join([*(["password"] if route.password else []), *(["TLS"] if route.tls else [])])
        or "neither login nor TLS"
    )
    if local or (route.password and route.tls):
        return Finding("access", "good", f"{how}, {'from this machine' if local else 'over the network'}")
    consequence = "Whoever can reach it, or read the network, can take and break locks, or learn who holds them."
    return Finding("access", "danger", f"{how}, over the network", consequence, "Users and TLS: see the server's page.")


def _round_trip(took: float) -> Finding:
    found = f"{took * 1000:.2f} ms"
    if took < SLOW:
        return Finding("round trip", "good", found)
    return Finding("round trip", "warning", found, "Every acquire and every hand-off takes at least this long.")


def _use(info: Any) -> Finding:
    text = info.decode() if isinstance(info, bytes) else str(info)
    fields = dict(line.partition(":")[::2] for line in text.splitlines() if ":" in line)
    named = (f"{fields[name]} {name}" for name in ("sessions", "claims", "waiting", "cells") if name in fields)
    return Finding("in use", "good", ", ".join(named))
