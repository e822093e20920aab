"""What the lock table answers, as it goes over the wire."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

from holdfast.core.table import commands
from holdfast.model import Gone, Granted, Link, LockEvent, LockInfo, Party, Place, Refused
from holdfast.server.resp import OK, OVER, Resp
from holdfast.server.users import User
from holdfast.server.wire_error import LimitReached

NOBODY = Link("", "", "", 0, "", "", "")
"""What stands for a member of a cycle whose locks one may not read."""


MOST_OF_A_CYCLE = 1 << 20
"""Bytes of a deadlock's owners in one answer, about."""


def ms(seconds: float) -> int:
    """A duration that must not come out longer than it is."""
    return max(0, int(seconds * 1000))


def moment(seconds: float) -> int:
    """A point in time."""
    return round(seconds * 1000)


def party(one: Party | None) -> dict[str, Any] | None:
    """One who holds or waits."""
    if one is None:
        return None
    return {
        "claim": one.claim, "owner": one.owner, "app": one.app, "host": one.host, "pid": one.pid,
        "thread": one.thread, "note": one.note, "since": moment(one.since), "age": ms(one.age), "mode": one.mode,
        "subtree": int(one.subtree), "token": one.token, "slot": one.slot, "name": one.name,
    }  # fmt: skip


def lock(info: LockInfo) -> dict[str, Any]:
    """A lock in use."""
    return {
        "kind": info.kind,
        "name": info.name,
        "limit": info.limit,
        "holders": [party(one) for one in info.holders],
        "waiters": [party(one) for one in info.waiters],
    }


def link(one: Link) -> dict[str, Any]:
    """One owner of a deadlock."""
    return {
        "owner": one.owner, "app": one.app, "host": one.host, "pid": one.pid, "thread": one.thread,
        "holds": one.holds, "waits_for": one.waits_for,
    }  # fmt: skip


def links(cycle: Sequence[Link], user: User) -> list[dict[str, Any]]:
    """The owners of a deadlock, the first of them if they do not fit into an answer. Those that a user must not see
    are left blank.
    """
    found: list[dict[str, Any]] = []
    room = MOST_OF_A_CYCLE
    for one in cycle:
        shown = one if user.may_read(one.holds) and user.may_read(one.waits_for) else NOBODY
        room -= 200 + sum(map(len, (shown.owner, shown.app, shown.host, shown.thread, shown.holds, shown.waits_for)))
        if room < 0:
            break
        found.append(link(shown))
    return found


def event(one: LockEvent, user: User) -> dict[str, Any]:
    """Something that happened. The detail of a deadlock names all its locks: only for those who may read everything."""
    detail = one.detail if one.type != "deadlock" or "" in user.reads else ""
    return {
        "type": one.type, "kind": one.kind, "name": one.name, "owner": one.owner, "claim": one.claim,
        "at": moment(one.at), "token": one.token, "mode": one.mode, "detail": detail,
    }  # fmt: skip


def granted(reply: Granted) -> list[Any]:
    """A grant, without its first word."""
    return [reply.token, reply.slot, None if reply.hold_left is None else ms(reply.hold_left)]


def encode(reply: commands.Reply, resp: Resp, user: User, chosen: str | None = None) -> bytes:
    """The reply to a command about a claim or a session. `chosen` is the claim id, if the server chose it."""
    extra = [] if chosen is None else [chosen]
    match reply:
        case Granted(token, None, None) if chosen is None:
            return resp.granted % token
        case Granted():
            return resp.encode(["granted", *granted(reply), *extra])
        case commands.Done():
            return OK
        case Place(position, blocker):
            return resp.encode(["queued", position, party(user.sees(blocker)), *extra])
        case Refused(blocker):
            return resp.encode(["refused", party(user.sees(blocker))])
        case Gone(reason):
            return resp.encode(["gone", reason])
        case commands.SessionOver():
            return OVER
        case commands.Deadlocked(cycle):
            return resp.encode(["deadlock", links(cycle, user)])
        case commands.TooEntangled(limit):
            raise LimitReached("search", limit, "the search for a deadlock would look at more claims")
        case commands.WrongLimit(limit):
            return resp.encode(["limit", limit])
        case commands.Renewed(ttl, gone, next_death, more=more):
            soon = None if next_death is None else ceil(next_death * 1000)
            return resp.encode(["open", ms(ttl), soon, gone, int(more)])
        case commands.OwnClaimsPage(claims, more):
            own = [[claim.id, claim.kind, claim.name, token] for claim, token in claims]
            return resp.encode(["claims", int(more), own])
        case commands.CellValue(value, version):
            return resp.encode(["cell", version, value])
        case commands.Mismatch(current):
            return resp.encode(["mismatch", current])
        case commands.Letters(last=last, lost=True):
            return resp.encode(["lost", last])
        case commands.Letters(events, last, overflowed):
            return resp.encode(["letters", last, int(overflowed), [event(one, user) for one in events]])
        case commands.BreakUnderWay(claims, None):
            return resp.encode(claims)
        case commands.BreakUnderWay(claims, (order, id_), upto):
            return resp.encode([*claims, ["more", f"{upto} {order} {id_}"]])
        case _:
            raise AssertionError(f"{reply!r} has no form on the wire")
