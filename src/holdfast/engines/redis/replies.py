"""From what the scripts answer to what the recipes understand."""

from __future__ import annotations

from typing import Any

from holdfast.core.table.commands import Deadlocked, Done, Letters, SessionOver, TooEntangled, WrongLimit
from holdfast.model import Gone, Granted, Link, LockEvent, LockInfo, Party, Place, Refused

Standing = Granted | Place | Gone | SessionOver | Refused | Deadlocked | WrongLimit | TooEntangled


def seconds(milliseconds: Any) -> float | None:
    """A time that a script gave, None if it gave -1."""
    found = int(milliseconds)
    return None if found < 0 else found / 1000


def standing(reply: Any) -> Standing:
    """How a claim stands. A token by itself is a grant about which there is no more to say."""
    if type(reply) is bytes:
        return Granted(int(reply))
    match reply[0]:
        case b"granted":
            return Granted(int(reply[1]), None if reply[2] < 0 else reply[2], seconds(reply[3]))
        case b"place":
            return Place(reply[1], party(reply[2]) if reply[2] else None)
        case b"refused":
            return Refused(party(reply[1]) if reply[1] else None)
        case b"gone":
            return Gone(reply[1].decode())
        case b"over":
            return SessionOver()
        case b"deadlock":
            return Deadlocked(tuple(link(found) for found in reply[1]))
        case b"entangled":
            return TooEntangled(int(reply[1]))
        case b"limit":
            return WrongLimit(int(reply[1]))
    raise AssertionError(f"a script answered {reply!r}")


def done(reply: list[Any]) -> Done:
    """It was done."""
    return Done(more=bool(reply[1]), next_death=seconds(reply[2]))


def party(reply: list[Any]) -> Party:
    """Who holds or waits."""
    texts: list[Any] = [part.decode() if isinstance(part, bytes) else part for part in reply]
    claim, owner, app, host, pid, thread, note, since, age, mode, token, slot, name, _ = texts
    return Party(
        claim=claim,
        owner=owner,
        app=app,
        host=host,
        pid=int(pid),
        thread=thread,
        note=note,
        since=int(since) / 1000,
        age=max(0, int(age)) / 1000,
        mode="exclusive" if mode == "x" else "shared",
        token=int(token) if token else None,
        slot=None if slot < 0 else slot,
        name=name,
    )


def link(reply: list[bytes]) -> Link:
    """One owner in a deadlock."""
    owner, app, host, pid, thread, holds, waits_for = (part.decode() for part in reply)
    return Link(owner, app, host, int(pid), thread, holds, waits_for)


def info(reply: list[Any], namespace: str) -> LockInfo:
    """Who holds one lock and who waits for it."""
    kind, _, name = reply[0].decode().partition(":")
    limit = max((found[13] for found in (*reply[1], *reply[2])), default=0)
    holders, waiters = (tuple(party(found) for found in part) for part in reply[1:])
    return LockInfo(f"{namespace}.{kind}", name, holders, waiters, limit)


def letters(reply: list[Any], namespace: str, after: int) -> Letters:
    """What a watch has collected."""
    if reply[0] == b"lost":
        return Letters((), reply[1], overflowed=True, lost=True)
    last, found = reply[1], [event(letter, namespace) for letter in reply[2:]]
    # A number that is missing is that of an event that found no room.
    return Letters(tuple(found), last, overflowed=last - after > len(found))


def event(letter: list[Any], namespace: str) -> LockEvent:
    """One event."""
    texts: list[Any] = [part.decode() if isinstance(part, bytes) else part for part in letter]
    _, what, kind, name, owner, claim, at, token, mode, detail = texts
    return LockEvent(
        type=what,
        kind=f"{namespace}.{kind}",
        name=name,
        owner=owner,
        claim=claim,
        at=int(at) / 1000,
        token=int(token) if token else None,
        mode="exclusive" if mode == "x" else "shared",
        detail=detail,
    )
