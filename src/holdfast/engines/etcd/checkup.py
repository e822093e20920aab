"""How an etcd cluster is really set up, and what that does to a lock."""

from __future__ import annotations

import re
import ssl
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any

from holdfast.core.deadline import beat_interval
from holdfast.engines.checkup import Finding, Level
from holdfast.engines.etcd import steps
from holdfast.engines.etcd.address import Address
from holdfast.engines.etcd.http2 import CallFailed
from holdfast.engines.etcd.messages import message
from holdfast.engines.etcd.wire import (
    ALARM,
    LEASE_GRANT,
    LEASE_REVOKE,
    MEMBERS,
    STATUS,
    EtcdPort,
    Request,
    Wire,
)
from holdfast.errors import EngineUnavailable
from holdfast.runtime import clock

PATIENCE = 5.0
OLDEST = (3, 4)
SLOW_FSYNC = 0.010
"""Seconds: etcd's own advice for the 99th percentile of its log's fsync."""
SKEW = 2.0
"""Seconds; a member's clock is known to a second at best."""
MANY_REVISIONS = 100_000
FULL = 0.8
ALARMS = {1: "NOSPACE", 2: "CORRUPT"}
COMMON_TTL = 10.0


@dataclass
class Seen:
    """What one member said of itself; nothing if it did not answer."""

    target: str
    status: Any = None
    problem: str = ""
    metrics: dict[str, float] = field(default_factory=dict)
    fsync: float | None = None
    """The 99th percentile of its log's fsync, in seconds, as far as its buckets tell."""
    skew: float | None = None


def check_up(address: Address) -> list[Finding]:
    """Ask every member; EngineUnavailable if none answers."""
    wire = Wire(address)
    try:
        port = EtcdPort(wire)
        until = clock.now() + PATIENCE
        members = list(port.call(Request(MEMBERS, message("MemberListRequest")()), until).message.members)
        seen = [_look(wire, number) for number in range(len(wire.endpoints))]
        answered = [each for each in seen if each.status is not None]
        if not answered:
            raise EngineUnavailable(address.shown, f"no member answers: {seen[0].problem}", "not done")
        return [
            _size(members),
            *_endpoints(seen, members),
            _leader(answered),
            _versions(answered),
            *_former_leader(members, answered),
            _lease(port),
            *_fsync(answered),
            *_skew(answered),
            _secrets(address),
            *_alarms(port),
            *_space(answered),
            _history(port, answered),
        ]
    finally:
        wire.close()


def _look(wire: Wire, number: int) -> Seen:
    endpoint = wire.endpoints[number]
    seen = Seen(endpoint.target)
    try:
        seen.status = endpoint.exchange(STATUS, message("StatusRequest")(), wire.token(PATIENCE), 2.0)
    except CallFailed as error:
        seen.problem = error.details
        return seen
    _read_metrics(wire.address, seen)
    return seen


def _read_metrics(address: Address, seen: Seen) -> None:
    """Its metrics and its clock, where it shows them to us."""
    context = None
    if address.tls:
        context = ssl.create_default_context(cadata=address.ca.decode() if address.ca else None)
        # What is read here is of no use to anybody who could pretend to be the member.
        context.check_hostname = False
    url = f"{'https' if address.tls else 'http'}://{seen.target}/metrics"
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}),
        urllib.request.HTTPSHandler(context=context) if context else urllib.request.HTTPHandler(),
    )
    try:
        before = time.time()
        with opener.open(url, timeout=2.0) as reply:
            text = reply.read().decode()
            date = reply.headers.get("Date")
    except urllib.error.HTTPError as refusal:
        refusal.close()
        return
    except (OSError, ValueError):
        return
    if date:
        # It is cut to whole seconds.
        seen.skew = parsedate_to_datetime(date).timestamp() + 0.5 - (before + time.time()) / 2
    buckets: list[tuple[float, float]] = []
    for line in text.splitlines():
        name, _, value = line.rpartition(" ")
        if name.startswith('etcd_disk_wal_fsync_duration_seconds_bucket{le="'):
            buckets.append((float(name.split('"')[1]), float(value)))
        elif name and not name.startswith("#") and "{" not in name:
            seen.metrics[name] = float(value)
    total = buckets[-1][1] if buckets else 0.0
    if total:
        seen.fsync = next(limit for limit, count in buckets if count >= 0.99 * total)


def _size(members: list[Any]) -> Finding:
    voters = [member for member in members if not member.isLearner]
    spare = (len(voters) - 1) // 2
    found = f"{len(voters)} voting members; {spare} may fail"
    if spare == 0:
        return Finding(
            "cluster size", "warning", found, "The loss of one member stops every lock.", "run three or five members"
        )
    if len(voters) % 2 == 0:
        return Finding(
            "cluster size",
            "warning",
            found,
            "An even number survives no more than one member fewer would.",
            "add or remove one member",
        )
    return Finding("cluster size", "good", found)


def _endpoints(seen: list[Seen], members: list[Any]) -> list[Finding]:
    silent = [each for each in seen if each.status is None]
    findings = []
    if silent:
        names = ", ".join(f"{each.target} ({each.problem})" for each in silent)
        voters = sum(not member.isLearner for member in members)
        margin = (voters - 1) // 2 - len(silent)
        level: Level = "warning" if margin > 0 else "danger"
        findings.append(
            Finding("members", level, f"no answer from {names}", f"{max(0, margin)} more may fail.", "bring them back")
        )
    else:
        findings.append(Finding("members", "good", f"all {len(seen)} named in the URL answer"))
    if len(seen) < len(members):
        findings.append(
            Finding(
                "endpoints",
                "warning",
                f"the URL names {len(seen)} of {len(members)} members",
                "If those fail, the client does not find the others.",
                "name every member in the URL",
            )
        )
    return findings


def _leader(seen: list[Seen]) -> Finding:
    leaders = {each.status.leader for each in seen}
    terms = {each.status.raftTerm for each in seen}
    behind = max(each.status.raftIndex for each in seen) - min(each.status.raftIndex for each in seen)
    if leaders == {0} or 0 in leaders:
        return Finding("leader", "danger", "a member knows no leader", "Nothing is granted until there is one.")
    if len(leaders) > 1:
        return Finding("leader", "warning", f"members disagree, terms {sorted(terms)}", "An election is under way.")
    return Finding("leader", "good", f"one, in term {max(terms)}; the last member is {behind} entries behind")


def _versions(seen: list[Seen]) -> Finding:
    versions = sorted({each.status.version for each in seen})
    oldest = tuple(int(part) for part in versions[0].split(".")[:2])
    if oldest < OLDEST:
        return Finding(
            "version",
            "danger",
            ", ".join(versions),
            "Ranges cannot be compared in a transaction.",
            "upgrade to 3.4 or 3.5",
        )
    if any(_forgets(version) for version in versions):
        return Finding(
            "version",
            "danger",
            ", ".join(versions),
            "A member that is killed may forget what it had committed (etcd's issue 13766): locks are granted twice.",
            "upgrade to 3.5.5 or later",
        )
    if len(versions) > 1:
        return Finding("version", "warning", ", ".join(versions), "Members of several versions.", "finish the upgrade")
    return Finding("version", "good", versions[0])


def _former_leader(members: list[Any], seen: list[Seen]) -> list[Finding]:
    """Whether a leader that was paused ends leases that its successor keeps. A single member has no successor."""
    versions = sorted({each.status.version for each in seen})
    if len(members) < 2 or not any(_revokes(version) for version in versions):
        return []
    return [
        Finding(
            "former leader",
            "warning",
            ", ".join(versions),
            "A leader that stands still (a paused machine, a slow disk) until another one leads ends live leases when "
            "it goes on (etcd's issue 15247): a lock can be granted to another client while its holder still counts "
            "on it. Only a fence protects against that.",
            "upgrade to 3.4.31, 3.5.13 or later",
        )
    ]


def _revokes(version: str) -> bool:
    """Whether it is a version in which a former leader's requests to end leases are carried out."""
    parts = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
    return parts < (3, 4, 31) or (3, 5) <= parts < (3, 5, 13)


def _forgets(version: str) -> bool:
    """Whether it is one of the first of 3.5."""
    parts = re.findall(r"\d+", version)
    return parts[:2] == ["3", "5"] and len(parts) > 2 and int(parts[2]) < 5


def _lease(port: EtcdPort) -> Finding:
    """The shortest lease that the cluster grants: it follows from its election's limit."""
    until = clock.now() + PATIENCE
    try:
        granted = port.call(Request(LEASE_GRANT, message("LeaseGrantRequest")(TTL=1)), until).message
    except EngineUnavailable as error:
        return Finding("lease", "danger", f"no session can be opened: {error.problem}", "No lock is granted.")
    port.call(Request(LEASE_REVOKE, message("LeaseRevokeRequest")(ID=granted.ID)), until)
    shortest: int = granted.TTL
    found = f"a session lives for whole seconds, {shortest} at least"
    if shortest > COMMON_TTL:
        return Finding(
            "lease",
            "warning",
            found,
            "A dead holder costs that long, whatever ttl was asked for.",
            "lower --election-timeout",
        )
    return Finding("lease", "good", found, f"A ttl of 10 s beats every {beat_interval(COMMON_TTL):.1f} s.")


def _fsync(seen: list[Seen]) -> list[Finding]:
    known = [each for each in seen if each.fsync is not None]
    if not known:
        return [Finding("fsync", "warning", "no member shows us its metrics", "Their disks are not known.")]
    worst = max(known, key=lambda each: each.fsync or 0.0)
    assert worst.fsync is not None
    found = f"99 % within {worst.fsync * 1000:g} ms at the slowest member ({worst.target})"
    if worst.fsync > SLOW_FSYNC:
        return [
            Finding(
                "fsync",
                "warning",
                found,
                "Every grant waits for it; heartbeats late by it cause elections.",
                "give the log a faster disk of its own",
            )
        ]
    return [Finding("fsync", "good", found)]


def _skew(seen: list[Seen]) -> list[Finding]:
    known = {each.target: each.skew for each in seen if each.skew is not None}
    if not known:
        return []
    target, skew = max(known.items(), key=lambda item: abs(item[1]))
    if abs(skew) > SKEW:
        return [
            Finding(
                "clock skew",
                "warning",
                f"{target} is {skew:+.0f} s from this machine",
                "No lock rests on it; certificates, tokens of signing in and shown times do.",
                "run a time service",
            )
        ]
    return [Finding("clock skew", "good", f"within {SKEW:g} s; no lock rests on it")]


def _secrets(address: Address) -> Finding:
    open_ = [what for what, on in (("TLS", address.tls), ("user and password", address.user)) if not on]
    found = ", ".join(("TLS" if address.tls else "no TLS", "a user" if address.user else "no user"))
    local = all(target.startswith(("127.", "localhost:", "[::1]")) for target in address.endpoints)
    if open_ and not local:
        return Finding(
            "access",
            "warning",
            found,
            "Whoever reaches the cluster can take, release and read every lock.",
            "etcd://user:password@…?ca=/path/ca.pem",
        )
    return Finding("access", "good", found)


def _alarms(port: EtcdPort) -> list[Finding]:
    found = port.call(Request(ALARM, message("AlarmRequest")()), clock.now() + PATIENCE).message.alarms
    return [
        Finding(
            "alarm",
            "danger",
            ALARMS.get(alarm.alarm, str(alarm.alarm)),
            "Nothing can be written: no lock is granted.",
            "compact, defragment, then etcdctl alarm disarm",
        )
        for alarm in found
    ]


def _space(seen: list[Seen]) -> list[Finding]:
    findings = []
    for each in seen:
        quota = each.metrics.get("etcd_server_quota_backend_bytes", 0.0)
        if quota and each.status.dbSize > FULL * quota:
            findings.append(
                Finding(
                    "space",
                    "danger",
                    f"{each.target} has used {each.status.dbSize / quota:.0%} of its quota",
                    "When it is full nothing is granted any more.",
                    "compact, defragment, raise --quota-backend-bytes",
                )
            )
    largest = max(each.status.dbSize for each in seen)
    return findings or [Finding("space", "good", f"{largest / 1e6:.1f} MB")]


def _history(port: EtcdPort, seen: list[Seen]) -> Finding:
    """Whether old revisions are ever forgotten: each lock that is taken and given back makes two."""
    revision = max(each.status.header.revision for each in seen)
    try:
        port.call(steps.look(b"\0", limit=1, revision=1), clock.now() + PATIENCE)
    except EngineUnavailable:
        return Finding("compaction", "good", f"old revisions are forgotten; now at {revision}")
    level: Level = "warning" if revision > MANY_REVISIONS else "good"
    return Finding(
        "compaction",
        level,
        f"nothing was ever forgotten, {revision} revisions so far",
        "Every lock that is taken and given back adds two; a full quota stops everything.",
        "--auto-compaction-mode periodic --auto-compaction-retention 1h",
    )
