"""What `doctor` finds in a ZooKeeper ensemble.

Each server is asked by its four-letter words, where it allows them; what they do not tell is
found out by a session of our own.
"""

from __future__ import annotations

import re
import socket
import time
from dataclasses import dataclass, field
from typing import Any

from holdfast.core import deadline
from holdfast.engines.checkup import Finding
from holdfast.engines.zookeeper.address import ZooKeeperAddress
from holdfast.engines.zookeeper.asking import Dropped, LinkOver
from holdfast.engines.zookeeper.ledger import SessionPaths
from holdfast.engines.zookeeper.link import Link
from holdfast.engines.zookeeper.part import Part
from holdfast.errors import EngineUnavailable
from holdfast.runtime import clock

PATIENCE = 10.0
WORD_PATIENCE = 2.0
TTL = 10.0
"""What `connect()` asks for unless told."""
OLDEST = (3, 5)
OLDEST_TO_WATCH = (3, 6)
SKEW = 1.0
SLOW_MS = 100.0
"""A server whose requests take longer than this on average keeps every waiter waiting."""
MOST_LOGS = 10e9
"""Log files are made 64 MB long at once, so even a new server has a few hundred megabytes."""
LARGEST_ASKED = 1_048_000
"""A little less than the default of `jute.maxbuffer`."""
OVERHEAD = 14
"""What a read takes beside its path and the slash before it."""
WORDS = "4lw.commands.whitelist=srvr,conf,mntr,ruok"


@dataclass
class ServerReport:
    """What one server said of itself."""

    address: str
    reachable: bool = False
    allows: bool = False
    """Whether it answers four-letter words."""
    facts: dict[str, str] = field(default_factory=dict)

    @property
    def mode(self) -> str:
        """leader, follower, observer, standalone; empty if it does not say."""
        return self.facts.get("mode", self.facts.get("zk_server_state", ""))

    @property
    def version(self) -> str:
        """Its number; empty if it does not say."""
        told = self.facts.get("zookeeper version", self.facts.get("zk_version", ""))
        found = re.match(r"\d+(\.\d+)+", told)
        return found[0] if found else ""

    def number(self, fact: str) -> float | None:
        try:
            return float(self.facts[fact])
        except (KeyError, ValueError):
            return None


def ask(address: ZooKeeperAddress, host: str, word: str) -> str:
    """The answer to a four-letter word; OSError if the server cannot be reached."""
    name, _, port = host.rpartition(":")
    name = name.strip("[]")
    with socket.create_connection((name, int(port)), WORD_PATIENCE) as plain:
        plain.settimeout(WORD_PATIENCE)
        wire = address.wrap(plain, name) if address.tls else plain
        wire.sendall(word.encode())
        answer = b""
        while part := wire.recv(65536):
            answer += part
        if wire is not plain:
            wire.close()
        return answer.decode(errors="replace")


def question(address: ZooKeeperAddress, host: str) -> ServerReport:
    """All that one server tells."""
    report = ServerReport(host)
    for word in ("srvr", "conf", "mntr"):
        try:
            answer = ask(address, host, word)
        except OSError:
            continue
        report.reachable = True
        if "is not executed because it is not in the whitelist" in answer or not answer.strip():
            continue
        report.allows = True
        for line in answer.splitlines():
            parts = re.split(r"[=\t]|: ", line, maxsplit=1)
            if len(parts) == 2:
                report.facts[parts[0].strip().lower() if word == "srvr" else parts[0].strip()] = parts[1].strip()
    return report


def check_up(verbs: Part, address: ZooKeeperAddress, ttl: float = TTL) -> list[Finding]:
    """Read the real configuration; EngineUnavailable if no server can be reached."""
    from holdfast.runtime.blocking import run

    reports = [question(address, host) for host in address.hosts]
    if not any(report.reachable for report in reports):
        raise EngineUnavailable(address.shown, "no server of the ensemble can be reached", "not done")
    # The shortest session that anybody may ask for shows the lower limit, the ttl itself the upper one.
    shortest, _ = run(_try_session(verbs, address, deadline.SHORTEST_TTL, compare=False))
    granted, skew = run(_try_session(verbs, address, ttl, compare=True))
    largest = run(_largest_request(verbs, address))
    return [
        check_versions(reports),
        _servers(reports),
        _quorum(reports),
        _session_limits(ttl, granted, shortest, reports),
        _tick(granted, reports),
        _latency(reports),
        _sync(reports),
        _snapshots(reports),
        _skew(skew),
        _ending(largest),
        _security(address),
        _words(reports),
    ]


async def _try_session(verbs: Part, address: ZooKeeperAddress, ttl: float, compare: bool) -> tuple[float, float]:
    """What a session of this ttl is really given, in seconds, and how far the server's clock is ahead, if asked."""
    link = Link(address, ttl, beats=False)
    link.start()
    until = clock.now() + PATIENCE
    try:
        await verbs.ready(link, until)
        granted, skew = link.negotiated, 0.0
        if not compare:
            return granted, skew
        path = f"{address.chroot}/holdfast"
        await verbs.make_paths(link, [path], until)
        before = time.time()
        probe = f"{path}/doctor-"
        asked = link.kazoo.create_async(probe, b"", ephemeral=True, sequence=True, include_data=True)
        made = await verbs.answer(link, until, asked)
        if not isinstance(made, Exception):
            skew = made[1].ctime / 1000 - (before + time.time()) / 2
            await verbs.answer(link, until, link.kazoo.delete_async(made[0]))
        return granted, skew
    except LinkOver as over:
        raise EngineUnavailable(address.shown, str(over), "not done") from over
    finally:
        link.say_farewell()
        link.close()


async def _largest_request(verbs: Part, address: ZooKeeperAddress) -> int:
    """How long a request may be, in bytes: `jute.maxbuffer`, found out by reads that no server has an answer to."""
    low, high = 0, LARGEST_ASKED
    size = high
    while high - low > high // 100:
        if await _passes(verbs, address, size):
            low = size
        else:
            high = size
        if low >= LARGEST_ASKED:
            break
        size = (low + high) // 2
    return low


async def _passes(verbs: Part, address: ZooKeeperAddress, size: int) -> bool:
    """Whether a server reads a request of this size. It closes the connection over one that is too long."""
    link = Link(address, TTL, beats=False)
    link.start()
    until = clock.now() + PATIENCE
    try:
        await verbs.ready(link, until)
        await verbs.answer(link, until, link.kazoo.exists_async("/" + "x" * (size - OVERHEAD)))
        return True
    except Dropped:
        return False
    except LinkOver as over:
        raise EngineUnavailable(address.shown, str(over), "not done") from over
    finally:
        link.say_farewell()
        link.close()


def _ending(largest: int) -> Finding:
    """Whether the longest transaction that a dying client can cause is one that the servers can read."""
    found = f"requests of {largest:,} bytes are read"
    if largest >= LARGEST_ASKED:
        found = f"requests of {largest:,} bytes and more are read"
    if 2 * largest < SessionPaths.MOST * 1.2:
        return Finding(
            "jute.maxbuffer", "danger", found,
            f"a client whose claims take {2 * largest:,} bytes of paths stops the whole ensemble when it dies",
            "jute.maxbuffer=1048575 or more on every server",
        )  # fmt: skip
    return Finding("jute.maxbuffer", "good", found, f"a client makes claims with {SessionPaths.MOST:,} bytes of paths")


def _servers(reports: list[ServerReport]) -> Finding:
    shown = ", ".join(f"{report.address} {report.mode or ('up' if report.reachable else 'DOWN')}" for report in reports)
    down = [report.address for report in reports if not report.reachable]
    if down:
        return Finding(
            "servers", "warning", shown, f"{', '.join(down)} cannot be reached: one more loss is nearer than it looks"
        )
    return Finding("servers", "good", shown)


def check_versions(reports: list[ServerReport]) -> Finding:
    """The oldest of them decides what works."""
    told = {report.version for report in reports if report.version}
    if not told:
        return Finding("version", "warning", "unknown", "the servers do not tell", WORDS)
    versions = sorted(told, key=_numbers)
    found = ", ".join(versions)
    if _numbers(versions[0]) < OLDEST:
        return Finding("version", "danger", found, "it is too old for this engine", "ZooKeeper 3.5 or later")
    if _numbers(versions[0]) < OLDEST_TO_WATCH:
        return Finding("version", "warning", found, "watch() is refused", "ZooKeeper 3.6 or later")
    if len(versions) > 1:
        return Finding("version", "warning", found, "servers of several versions", "finish the upgrade")
    return Finding("version", "good", found)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split("."))


def _quorum(reports: list[ServerReport]) -> Finding:
    members = max((sum(1 for fact in report.facts if fact.startswith("server.")) for report in reports), default=0)
    alone = any(report.mode == "standalone" for report in reports) or members == 1
    if alone:
        return Finding(
            "quorum margin", "warning", "one server alone",
            "while it is down nothing is granted, and what it loses is lost", "an ensemble of three or five",
        )  # fmt: skip
    size = members or len(reports)
    up = sum(1 for report in reports if report.reachable)
    needed = size // 2 + 1
    found = f"{size} servers, {up} of those in the URL up, {needed} needed"
    if not any(report.mode == "leader" for report in reports) and all(report.allows for report in reports):
        return Finding("quorum margin", "warning", f"{found}; no leader among them", "is the URL complete?")
    if size % 2 == 0:
        return Finding(
            "quorum margin", "warning", found, "an even number survives no more losses than one server less",
            "an odd number",
        )  # fmt: skip
    if len(reports) < size:
        return Finding(
            "quorum margin", "warning", found, "a client that knows only some servers is cut off with them",
            "name all servers in the URL",
        )  # fmt: skip
    if up - needed < 1:
        return Finding("quorum margin", "danger", found, "the next loss stops everything", "bring the others up")
    return Finding("quorum margin", "good", f"{found}: {up - needed} may be lost")


def _session_limits(ttl: float, granted: float, shortest: float, reports: list[ServerReport]) -> Finding:
    told = (report.facts.get("maxSessionTimeout") for report in reports)
    longest = next((limit for limit in told if limit is not None), None)
    found = f"asked for a ttl of {ttl:g} s, got {granted:g} s; the shortest is {shortest:g} s"
    if longest is not None:
        found += f", the longest {float(longest) / 1000:g} s"
    if granted < ttl:
        return Finding(
            "session limits", "warning", found, f"a holder has {granted * 2 / 3:.3g} s to get a heartbeat through",
            f"maxSessionTimeout={ttl * 1000:.0f}",
        )  # fmt: skip
    if granted > ttl:
        return Finding(
            "session limits", "warning", found, f"a dead holder keeps its locks for {granted:g} s",
            f"minSessionTimeout={ttl * 1000:.0f}, or a longer ttl",
        )  # fmt: skip
    return Finding("session limits", "good", found, f"a holder stops {granted / 3:.3g} s before its session can end")


def _tick(granted: float, reports: list[ServerReport]) -> Finding:
    ticks = [float(report.facts["tickTime"]) / 1000 for report in reports if "tickTime" in report.facts]
    if not ticks:
        return Finding("tickTime", "warning", "unknown", "the servers do not tell", WORDS)
    tick = max(ticks)
    found = f"{tick:g} s"
    if granted < 2 * tick:
        return Finding(
            "tickTime", "danger", found,
            f"a session of {granted:g} s is shorter than two ticks: its end can come before the holder stops",
            f"minSessionTimeout={tick * 2000:.0f}",
        )  # fmt: skip
    return Finding("tickTime", "good", found, f"a dead holder is noticed up to {tick:g} s after its ttl")


def _latency(reports: list[ServerReport]) -> Finding:
    known = {report.address: report.number("zk_avg_latency") for report in reports}
    figures = {host: value for host, value in known.items() if value is not None}
    synced = [value for report in reports if (value := report.number("zk_avg_fsynctime")) is not None]
    if not figures:
        return Finding("latency", "warning", "unknown", "the servers do not tell", WORDS)
    found = ", ".join(f"{host} {value:g} ms" for host, value in figures.items())
    found += f"; fsync {max(synced):g} ms" if synced else ""
    if max([*figures.values(), *synced]) > SLOW_MS:
        return Finding(
            "latency", "warning", found, "every grant waits for the slowest disk of the majority",
            "a disk of its own for dataLogDir",
        )  # fmt: skip
    return Finding("latency", "good", found)


def _sync(reports: list[ServerReport]) -> Finding:
    """forceSync is a system property: it is seen only by what it does to the fsync figures."""
    counts = [value for report in reports if (value := report.number("zk_cnt_fsynctime")) is not None]
    if counts and max(counts) == 0 and any((report.number("zk_packets_received") or 0) > 100 for report in reports):
        return Finding(
            "durability", "danger", "no fsync was ever made",
            "a power cut of the majority loses grants and repeats tokens", "zookeeper.forceSync=yes",
        )  # fmt: skip
    limits = next((report.facts for report in reports if "syncLimit" in report.facts), None)
    if limits is None:
        return Finding("durability", "good", "fsync unless zookeeper.forceSync=no was set; the servers do not tell")
    return Finding("durability", "good", f"syncLimit={limits['syncLimit']}, initLimit={limits.get('initLimit', '?')}")


def _snapshots(reports: list[ServerReport]) -> Finding:
    data = [value for report in reports if (value := report.number("zk_approximate_data_size")) is not None]
    kept = [value for report in reports if (value := report.number("dataLogSize")) is not None]
    if not data or not kept:
        return Finding("snapshots", "warning", "unknown", "the servers do not tell", WORDS)
    found = f"{max(data) / 1e6:.1f} MB of data, {max(kept) / 1e6:.0f} MB of logs and snapshots"
    if max(kept) > MOST_LOGS + 20 * max(data):
        return Finding(
            "snapshots", "warning", found, "old logs and snapshots seem to be kept for ever: the disk fills",
            "autopurge.purgeInterval=24",
        )  # fmt: skip
    return Finding("snapshots", "good", found)


def _skew(skew: float) -> Finding:
    found = f"the server's clock is {abs(skew):.3f} s {'ahead of' if skew > 0 else 'behind'} this machine's"
    if abs(skew) > SKEW:
        return Finding(
            "clock skew", "warning", found,
            "sessions do not depend on it, but times in messages will differ, and `keep` of cells goes by the server's",
        )  # fmt: skip
    return Finding("clock skew", "good", found, "sessions do not depend on it")


def _security(address: ZooKeeperAddress) -> Finding:
    settings: dict[str, Any] = address.settings
    login = "SASL" if "sasl_options" in settings else "digest" if "auth_data" in settings else "none"
    if login == "none":
        return Finding(
            "access", "warning", f"TLS {'on' if address.tls else 'off'}, no login",
            "everybody who reaches the servers may break locks", "zookeeper://user:password@…?tls=1",
        )  # fmt: skip
    if not address.tls:
        return Finding(
            "access", "warning", f"TLS off, {login} login", "passwords and data cross the network readable", "tls=1"
        )
    return Finding("access", "good", f"TLS on, {login} login")


def _words(reports: list[ServerReport]) -> Finding:
    silent = [report.address for report in reports if report.reachable and not report.allows]
    if silent:
        return Finding(
            "four-letter words", "warning", f"refused by {', '.join(silent)}", "doctor sees less than it could", WORDS
        )
    return Finding("four-letter words", "good", "answered")
