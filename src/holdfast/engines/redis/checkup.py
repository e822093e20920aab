"""How a Redis is really set up, and what that does to a lock."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hiredis import ReplyError

from holdfast.engines.checkup import Finding
from holdfast.engines.redis.route import Route
from holdfast.engines.resp.blocking import Connection
from holdfast.engines.resp.wire import Address, Lost, Part, Plain
from holdfast.errors import EngineUnavailable
from holdfast.runtime import clock

PATIENCE = 5.0
SETTINGS = ("maxmemory", "maxmemory-policy", "appendonly", "appendfsync", "save", "min-replicas-to-write", "timeout")
OLDEST = (6, 0)
SKEW = 1.0
"""Seconds by which a server's clock may differ from this machine's before anybody is told."""


@dataclass(frozen=True, slots=True)
class Look:
    """What one server said of itself."""

    address: Address
    info: Mapping[str, str]
    settings: Mapping[str, str] | None
    """None where the server does not let us see them."""
    skew: float
    """By how many seconds its clock is ahead of this machine's."""
    seen_from: str
    """The address that the server sees us at."""
    here: str
    """The address that we are at."""


def look_at(name: str, route: Route) -> Look:
    """Ask one server; EngineUnavailable if it cannot be reached."""
    until = clock.now() + PATIENCE
    try:
        address = route.locate(until)
        connection = Connection(address, route.login, route.tls, until)
    except Lost as lost:
        raise EngineUnavailable(name, lost.problem, "not done") from lost
    try:

        def ask(*parts: Part) -> Any:
            return connection.run(Plain(parts).packed(False), until)

        before = time.time()
        seconds, microseconds = ask("TIME")
        after = time.time()
        skew = int(seconds) + int(microseconds) / 1_000_000 - (before + after) / 2
        info = fields(ask("INFO").decode())
        mine = ask("CLIENT", "INFO")
        told = {} if isinstance(mine, ReplyError) else fields(mine.decode().replace(" ", "\n"), "=")
        host, port = connection.socket.getsockname()[:2]
        return Look(address, info, settings_of(ask), skew, told.get("addr", ""), str(Address(host, port)))
    except Lost as lost:
        raise EngineUnavailable(name, lost.problem, "unknown") from lost
    finally:
        connection.close()


def settings_of(ask: Any) -> Mapping[str, str] | None:
    """The settings that matter; None where CONFIG is forbidden, as managed services do."""
    found = {}
    for setting in SETTINGS:
        reply = ask("CONFIG", "GET", setting)
        if isinstance(reply, ReplyError):
            return None
        if len(reply) == 2:
            found[setting] = reply[1].decode()
    return found


def fields(text: str, between: str = ":") -> dict[str, str]:
    """Lines of `name:value` as a mapping."""
    pairs = (line.partition(between) for line in text.splitlines())
    return {name: value for name, found, value in pairs if found}


def check_up(name: str, route: Route) -> list[Finding]:
    """Everything about one server."""
    look = look_at(name, route)
    return [*check_server(look), check_skew(look)]


def check_server(look: Look) -> list[Finding]:
    """What does not depend on another server."""
    found = [check_version(look.info), check_role(look.info), check_proxy(look)]
    if look.settings is None:
        return [
            *found,
            Finding(
                "configuration", "warning", "CONFIG is not allowed here",
                "Eviction, persistence and replication could not be looked at.",
                "let this user run CONFIG GET, or ask whoever runs the service",
            ),
        ]  # fmt: skip
    return [*found, check_eviction(look), check_persistence(look), check_replicas(look)]


def check_version(info: Mapping[str, str]) -> Finding:
    """Scripts need effects replication and the clock inside."""
    server = "Valkey" if "valkey_version" in info else "Redis"
    text = info.get("valkey_version") or info.get("redis_version", "unknown")
    numbers = tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
    if numbers < OLDEST:
        return Finding(
            "version", "danger", f"{server} {text}", "Not tested with anything older than 6.0.", "upgrade it"
        )
    return Finding("version", "good", f"{server} {text}")


def check_role(info: Mapping[str, str]) -> Finding:
    """A replica refuses every write."""
    if info.get("role") == "master":
        return Finding("role", "good", "primary")
    return Finding(
        "role", "danger", info.get("role", "unknown"), "A replica takes no lock.",
        "name the primary, or use redis+sentinel://",
    )  # fmt: skip


def check_proxy(look: Look) -> Finding:
    """Something between client and server may keep a connection open whose other half is gone."""
    if not look.seen_from or look.seen_from == look.here:
        return Finding("proxy", "good", "none seen: the server sees us where we are")
    return Finding(
        "proxy", "warning", f"we are {look.here}, the server sees {look.seen_from}",
        "A proxy or address translation stands between. One that does not carry SUBSCRIBE makes waiters poll.",
        "connect to the server itself, or make sure that the proxy carries SUBSCRIBE and scripts",
    )  # fmt: skip


def check_eviction(look: Look) -> Finding:
    """Locks carry an expiry, so every policy but noeviction may evict them."""
    assert look.settings is not None
    policy, most = look.settings.get("maxmemory-policy", ""), int(look.settings.get("maxmemory", "0"))
    if policy != "noeviction":
        now = "" if most else " once maxmemory is set"
        return Finding(
            "eviction policy", "danger" if most else "warning", f"{policy}, maxmemory {most or 'unlimited'}",
            f"Redis may evict a lock that is held{now}: it would be given twice.",
            "maxmemory-policy noeviction, or a Redis of its own for locks",
        )  # fmt: skip
    used = int(look.info.get("used_memory", "0"))
    if most and used > 0.9 * most:
        return Finding(
            "eviction policy", "warning", f"noeviction, {used} of {most} bytes used",
            "When memory is full no lock is granted; what is held can still be released.", "raise maxmemory",
        )  # fmt: skip
    return Finding("eviction policy", "good", f"noeviction, maxmemory {most or 'unlimited'}")


def check_persistence(look: Look) -> Finding:
    """What a restart forgets."""
    assert look.settings is not None
    always = "appendonly yes and appendfsync always"
    if look.settings.get("appendonly") == "yes":
        how = look.settings.get("appendfsync", "everysec")
        if how == "always":
            return Finding("persistence", "good", "append-only file, fsync always")
        return Finding(
            "persistence", "warning", f"append-only file, fsync {how}",
            "A crash of the machine forgets the last second: a lock granted then may be given twice.", always,
        )  # fmt: skip
    if look.settings.get("save"):
        return Finding(
            "persistence", "warning", f"snapshots ({look.settings['save']})",
            "A crash forgets what came after the last snapshot: locks are given twice, each time with a higher token.",
            always,
        )  # fmt: skip
    return Finding(
        "persistence", "warning", "none",
        "A restart forgets every lock while its holder still works: it is given twice, with a higher token. Only a "
        "fence tells the two apart.",
        always,
    )  # fmt: skip


def check_replicas(look: Look) -> Finding:
    """A failover forgets what was not replicated."""
    assert look.settings is not None
    replicas, needed = int(look.info.get("connected_slaves", "0")), look.settings.get("min-replicas-to-write", "0")
    if not replicas and needed == "0":
        return Finding("replicas", "good", "none", "There is no failover that could forget a lock.")
    if needed == "0":
        return Finding(
            "replicas", "warning", f"{replicas}, min-replicas-to-write 0",
            "Replication is asynchronous: a failover forgets locks that no replica had heard of, and a primary that is "
            "cut off goes on granting.",
            "min-replicas-to-write 1 and min-replicas-max-lag 10 bound how long that lasts; a fence tells the holders "
            "apart, unless two primaries gave them equal tokens",
        )  # fmt: skip
    return Finding(
        "replicas", "good", f"{replicas}, min-replicas-to-write {needed}",
        "A failover may still forget the last moments: replication is asynchronous.",
    )  # fmt: skip


def check_skew(look: Look) -> Finding:
    """Tokens rest on the server's clock when it has lost its counter."""
    shown = f"{look.skew * 1000:+.0f} ms against this machine"
    if abs(look.skew) > SKEW:
        return Finding(
            "clock", "warning", shown,
            "One of the two clocks is wrong. After a failover to a server whose clock is behind, tokens go back.",
            "run NTP on every server",
        )  # fmt: skip
    return Finding("clock", "good", shown)


def check_nodes(name: str, routes: list[Route]) -> list[Finding]:
    """Every node of a Redlock, and what they are to each other. A node that cannot be reached is a finding."""
    found: list[Finding] = []
    looks: list[Look] = []
    for route in routes:
        try:
            look = look_at(name, route)
        except EngineUnavailable as error:
            found.append(Finding(
                str(route.locate(0.0)), "warning", error.problem, "One node less may fail before no lock is granted.",
                "start it again, after one ttl if it lost its data",
            ))  # fmt: skip
            continue
        looks.append(look)
        found += (replace(one, check=f"{look.address} {one.check}") for one in check_server(look))
    if len(looks) <= len(routes) // 2:
        raise EngineUnavailable(name, f"only {len(looks)} of {len(routes)} nodes answer", "not done")
    return [*check_together(looks, len(routes)), *found]


def check_together(looks: list[Look], nodes: int) -> list[Finding]:
    """What only shows when all nodes are seen side by side."""
    found = []
    if nodes % 2 == 0:
        found.append(Finding(
            "number of nodes", "warning", str(nodes), f"No more of them may fail than of {nodes - 1}.",
            "an odd number: 3, 5 or 7",
        ))  # fmt: skip
    ids = [look.info.get("run_id", str(look.address)) for look in looks]
    if len(set(ids)) < len(ids):
        found.append(Finding(
            "independence", "danger", f"{len(ids)} addresses, {len(set(ids))} servers",
            "One server votes more than once: its loss can be the loss of a majority.", "name every server once",
        ))  # fmt: skip
    skews = [look.skew for look in looks]
    apart = max(skews) - min(skews)
    shown = f"{apart * 1000:.0f} ms between the nodes"
    if apart > 0.1:
        found.append(Finding(
            "clocks", "warning", shown,
            "Tokens follow the fastest clock: should nodes lose their counters, they go back by that much.",
            "run NTP on every node",
        ))  # fmt: skip
    else:
        found.append(Finding("clocks", "good", shown))
    return found
