"""HF.CLUSTER: what one server knows of the cluster, as JSON."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from holdfast.engines.etcd.http2 import CallFailed
from holdfast.engines.etcd.keys import end_of
from holdfast.engines.etcd.messages import message
from holdfast.engines.etcd.wire import STATUS, Endpoint
from holdfast.errors import EngineUnavailable
from holdfast.runtime import clock
from holdfast.server.cluster.head import Head, read_head
from holdfast.server.cluster.membership import unpacked
from holdfast.server.cluster.wire import read, read_all

if TYPE_CHECKING:
    from holdfast.server.cluster.node import Node

WITHIN = 1.0
"""Seconds for each etcd node to say how it is."""


async def status(node: Node) -> bytes:
    """The reply to HF.CLUSTER."""
    store, mirror = node.store, node.mirror
    table = node.service.table if mirror is None else mirror.table
    number = node.number
    head, members, etcd = await asyncio.gather(_head(node), _members(node), ask_etcd(node))
    leader = node.leader
    found = {
        "id": node.member.id,
        "role": node.role,
        "leader": leader and {key: leader[key] for key in ("id", "advertise", "since")},
        "number": number,
        "members": members,
        "lease": {"ttl": node.membership.granted, "remaining": max(0.0, node.membership.deadline - clock.now())},
        "etcd": etcd,
        "log": {
            "batches": max(0, number - head.number),
            "bytes": store.figures().log_bytes if mirror is None else mirror.log_bytes,
        },
        "snapshot": {"number": head.number, "parts": head.parts, "bytes": head.size},
        "commit_seconds": store.recent or None,
        "sessions": len(table.sessions),
        "claims": len(table.rows),
    }
    return json.dumps(found).encode()


async def _head(node: Node) -> Head:
    """What the last snapshot is: the leader knows, others look."""
    known = node.store.head if node.mirror is None else node.mirror.head
    if node.store.leads:
        return known
    try:
        kv, _ = await read(node.etcd.call, node.keys.head)
    except EngineUnavailable:
        return known
    return known if kv is None else read_head(kv.value)


async def _members(node: Node) -> list[dict[str, Any]]:
    """Every server that has a lease; those that this one knows by itself if etcd is out of reach."""
    prefix = node.keys.members
    try:
        return [unpacked(kv.value) async for kv in read_all(node.etcd.call, prefix, end_of(prefix))]
    except EngineUnavailable:
        return [unpacked(node.member.packed())]


async def ask_etcd(node: Node) -> list[dict[str, Any]]:
    """How each node of etcd is, in the order of the URL."""
    loop = asyncio.get_running_loop()
    asked = [loop.run_in_executor(None, _ask, node, endpoint) for endpoint in node.etcd.wire.endpoints]
    return list(await asyncio.gather(*asked))


def _ask(node: Node, endpoint: Endpoint) -> dict[str, Any]:
    found: dict[str, Any] = {"endpoint": endpoint.target, "healthy": False, "leader": False, "version": None}
    found |= {"db_bytes": None, "problem": None}
    try:
        reply = endpoint.exchange(STATUS, message("StatusRequest")(), node.etcd.wire.token(WITHIN), WITHIN)
    except CallFailed as error:
        return found | {"problem": error.details}
    problem = "; ".join(reply.errors) or (None if reply.leader else "it knows no leader")
    return found | {
        "healthy": problem is None,
        "leader": bool(reply.leader) and reply.leader == reply.header.member_id,
        "version": reply.version,
        "db_bytes": reply.dbSize,
        "problem": problem,
    }
