"""Table commands as the server's words, and its answers as the table's replies (see the page "The wire")."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from holdfast.core.table import commands as cmd
from holdfast.core.table.lines import DONE, RELEASED_BEFORE
from holdfast.engines.resp.wire import Part, pack
from holdfast.errors import InvalidRequest
from holdfast.model import Claim, Gone, Granted, Link, LockEvent, LockInfo, Party, Place, Refused

OVER = "its session ran out"
LOCK = "holdfast.lock"
"""What a claim is on if it does not say."""
LONGEST_STEP = 100
"""Letters of owner, name and thread: as many as go as one have room in the smallest request that a server may allow."""
CELL = "cell:"
"""What the kind of a cell's events begins with."""


class Request(NamedTuple):
    """One command on its way."""

    packed: bytes
    decode: Callable[[Any], Any]
    session: str | None = None
    """Whose command it is; None if it needs no session."""
    repeats: bool = True
    """Whether it may be sent again when nobody knows whether it was carried out."""
    expects: str = ""
    """The claim that pushes may tell of from now on."""
    ends: str = ""
    """The claim that they do not tell of any more, once it is answered."""


class Step(NamedTuple):
    """A plain claim or its release on its way: it may go as one with those of other tasks, a line each."""

    claim: Claim
    decode: Callable[[Any], Any]
    session: str
    group: tuple[str, str]
    """What those have in common that go as one: session and kind."""
    expects: str
    """As with a request; the claim if it is to be taken."""
    ends: str
    """The claim if it is given back."""

    @property
    def repeats(self) -> bool:
        return True

    @property
    def line(self) -> str:
        """The step as one of many."""
        claim = self.claim
        start = len(claim.session) + 1
        suffix = claim.id[start:]
        if self.ends:
            return f"-{suffix}"
        mark = "+" if claim.waits else "?"
        return f"{mark}{suffix}\t{claim.name}\t{claim.owner[start:]}\t{claim.thread}"

    @property
    def packed(self) -> bytes:
        """The step by itself."""
        return told("HF.RELEASE", self.claim.id) if self.ends else acquiring(self.claim)


_new_step: Callable[[tuple[Any, ...]], Step] = partial(tuple.__new__, Step)
"""A step of all its fields, in half the time that their names take."""


def milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def told(*words: Part) -> bytes:
    """A command as bytes."""
    return pack(words)


def many(steps: Sequence[Step]) -> bytes:
    """Steps of one group as one command."""
    return told("HF.MANY", *steps[0].group, "\n".join([step.line for step in steps]))


# Sessions


def opening(command: cmd.Open, secret: str, role: tuple[str, ...]) -> Request:
    """The first word of a session: its secret is chosen by us, so that a repeat is the same session."""
    session = command.session
    packed = told(
        "HF.OPEN", session.id, secret, milliseconds(session.ttl), "APP", session.app, "HOST", session.host,
        "PID", session.pid, *role,
    )  # fmt: skip
    return Request(packed, opened)


def resuming(session: str, secret: str, role: tuple[str, ...]) -> Request:
    return Request(told("HF.RESUME", session, secret, *role), opened)


def opened(reply: Any) -> cmd.Opened | cmd.SessionOver:
    return cmd.SessionOver() if reply[0] == b"over" else cmd.Opened(reply[1] / 1000)


def _renew(command: cmd.Renew) -> Request:
    rest = ("AFTER", command.after) if command.after else ()
    return Request(told("HF.RENEW", command.session, *rest), renewed, command.session)


def renewed(reply: Any) -> cmd.Renewed | cmd.SessionOver:
    if reply[0] == b"over":
        return cmd.SessionOver()
    gone = tuple((claim.decode(), reason.decode()) for claim, reason in reply[3])
    return cmd.Renewed(reply[1] / 1000, gone, seconds(reply[2]), more=bool(reply[4]))


def _close(command: cmd.Close) -> Request:
    return Request(told("HF.CLOSE", command.session), done, command.session)


# Claims


def asked(claim: Claim) -> list[Part]:
    """What a claim asks for. Its owner first, then the thread: the server is quickest with that."""
    words: list[Part] = [claim.name, "OWNER", claim.owner]
    if claim.thread:
        words += ("THREAD", claim.thread)
    if claim.limit or claim.kind != LOCK:
        words += ("KIND", claim.kind)
    if claim.mode == "shared":
        words.append("SHARED")
    if claim.subtree:
        words.append("SUBTREE")
    if claim.limit:
        words += ("LIMIT", claim.limit)
    if claim.reentrant:
        words.append("REENTRANT")
    if claim.max_hold is not None:
        words += ("MAXHOLD", milliseconds(claim.max_hold))
    if claim.note:
        words += ("NOTE", claim.note)
    return words


def acquiring(claim: Claim) -> bytes:
    """A claim by itself."""
    return told("HF.ACQUIRE", claim.id, *asked(claim), *(() if claim.waits else ("WAIT", 0)))


def _enter(command: cmd.Enter) -> Request | Step:
    claim = command.claim
    counted = claim.limit or claim.max_hold is not None or claim.reentrant
    more = counted or claim.subtree or claim.note or claim.mode != "exclusive"
    texts = claim.owner + claim.name + claim.thread
    # What people call a thread may have a tab in it.
    if not more and len(texts) <= LONGEST_STEP and texts.isascii() and texts.isprintable():
        return _new_step((claim, standing, claim.session, (claim.session, claim.kind), claim.id, ""))
    return Request(acquiring(claim), standing, claim.session, expects=claim.id)


def _look(command: cmd.Look) -> Request:
    return Request(told("HF.LOOK", command.claim.id), standing, command.claim.session)


def _own_claims(command: cmd.OwnClaims) -> Request:
    rest = ("AFTER", command.after) if command.after else ()
    return Request(told("HF.CLAIMS", command.session, *rest), partial(own_claims, command.session), command.session)


def own_claims(session: str, reply: Any) -> cmd.OwnClaimsPage | cmd.SessionOver:
    """Claims of a session, as far as it takes to withdraw them."""
    if reply[0] == b"over":
        return cmd.SessionOver()
    found = ((*(part.decode() for part in parts), token) for *parts, token in reply[2])
    return cmd.OwnClaimsPage(
        tuple((Claim(id_, session, "", kind, name), token) for id_, kind, name, token in found), bool(reply[1])
    )


def _release(command: cmd.Release) -> Step:
    claim = command.claim
    return _new_step((claim, given_back, claim.session, (claim.session, claim.kind), "", claim.id))


def _leave(command: cmd.Leave) -> Request:
    flags = ("UNANSWERED",) if command.unanswered else ()
    claim = command.claim
    return Request(told("HF.LEAVE", claim.id, *flags), done, claim.session, ends=claim.id)


def _hand_over(command: cmd.HandOver) -> Request:
    return Request(told("HF.HANDOVER", command.claim.id, command.ticket), given_back, command.claim.session)


def _adopt(command: cmd.Adopt) -> Request:
    claim = command.claim
    packed = told("HF.ADOPT", claim.id, command.source, command.ticket, *asked(claim))
    return Request(packed, standing, claim.session)


Standing = Granted | Place | Refused | Gone | cmd.SessionOver | cmd.Deadlocked | cmd.WrongLimit


def standing(reply: Any) -> Standing:
    """How a claim stands."""
    if type(reply) is int:
        return Granted(reply)
    word = reply[0]
    if word == b"granted":
        return granted(reply[1:])
    if word == b"queued":
        return Place(reply[1], party(reply[2]))
    if word == b"refused":
        return Refused(party(reply[1]))
    if word == b"gone":
        return Gone(reply[1].decode())
    if word == b"over":
        return cmd.SessionOver()
    if word == b"deadlock":
        return cmd.Deadlocked(tuple(link(each) for each in reply[1]))
    assert word == b"limit", reply
    return cmd.WrongLimit(reply[1])


def granted(parts: list[Any]) -> Granted:
    """Token, slot and what is left of `max_hold`, as replies and pushes have them."""
    return Granted(parts[0], parts[1], seconds(parts[2]))


def given_back(reply: Any) -> cmd.Done | Gone:
    if reply == b"OK":
        return DONE
    return Gone(reply[1].decode() if reply[0] == b"gone" else OVER)


_INVALID = re.compile(r"""(\w+) (['"])(.*)\2(…?): (.*)""", re.DOTALL)


def invalid(text: str) -> InvalidRequest:
    """What the server says is wrong with a value, and with which one."""
    found = _INVALID.fullmatch(text)
    if found is None:
        return InvalidRequest("request", "", text)
    what, _, value, rest, rule = found.groups()
    return InvalidRequest(what.lower(), value + rest, rule)


def was_done_before(reply: Any) -> bool:
    """Whether the first try of a repeated release did it."""
    return isinstance(reply, Gone) and reply.reason == RELEASED_BEFORE


def done(reply: Any) -> cmd.Done:
    return DONE


def done_or_over(reply: Any) -> cmd.Done | cmd.SessionOver:
    return DONE if reply == b"OK" else cmd.SessionOver()


# For people


def _inspect(command: cmd.Inspect) -> Request:
    return Request(told("HF.INSPECT", command.name, "KIND", command.kind), lock)


def listing(command: cmd.List, cursor: bytes | None) -> Request:
    """A part of a listing, after what the last part ended with."""
    rest: tuple[Part, ...] = () if cursor is None else ("CURSOR", cursor)
    return Request(told("HF.LIST", command.prefix, "KIND", command.kind, *rest), page)


def page(reply: Any) -> tuple[tuple[LockInfo, ...], bytes | None]:
    """Some locks, and where to go on; None after the last."""
    return tuple(lock(each) for each in reply[2]), reply[3]


def breaking(command: cmd.Break, cursor: bytes | None) -> Request:
    """A part of a break, after what the last part ended with."""
    flags: tuple[Part, ...] = ("FORCE",) if command.force else ()
    if cursor is not None:
        flags += ("CURSOR", cursor)
    # A repeat would break whoever came next.
    return Request(told("HF.BREAK", command.name, "KIND", command.kind, *flags), broken, repeats=False)


def broken(reply: Any) -> tuple[tuple[str, ...], bytes | None]:
    """Claims that were told to go, and where to go on; None after the last."""
    cursor = reply.pop()[1] if reply and isinstance(reply[-1], list) else None
    return tuple(claim.decode() for claim in reply), cursor


def _watch(command: cmd.Subscribe) -> Request:
    if command.kind.startswith(CELL):
        words = ("HF.CELLWATCH", command.session, command.id, command.prefix, "KIND", command.kind[len(CELL) :])
    else:
        words = ("HF.WATCH", command.session, command.id, command.prefix, "KIND", command.kind)
    return Request(told(*words), done_or_over, command.session)


def _fetch(command: cmd.Fetch) -> Request:
    return Request(told("HF.FETCH", command.session, command.id, command.after), letters, command.session)


def letters(reply: Any) -> cmd.Letters | cmd.SessionOver:
    if reply[0] == b"over":
        return cmd.SessionOver()
    if reply[0] == b"lost":
        return cmd.Letters((), reply[1], overflowed=True, lost=True)
    return cmd.Letters(tuple(event(each) for each in reply[3]), reply[1], bool(reply[2]))


def _unwatch(command: cmd.Unsubscribe) -> Request:
    return Request(told("HF.UNWATCH", command.session, command.id), done, command.session)


def _raise(command: cmd.RaiseTokens) -> Request:
    return Request(told("HF.RAISE", command.above), done)


# Cells


def _cell_get(command: cmd.CellGet) -> Request:
    return Request(told("HF.CELLGET", command.name, "KIND", command.kind), cell)


def cell(reply: Any) -> cmd.CellValue:
    return cmd.CellValue(reply[2], reply[1])


def _cell_set(command: cmd.CellSet) -> Request:
    words: list[Part] = ["KIND", command.kind]
    if command.expected is not None:
        words += ("VERSION", command.expected)
    value = command.value
    if value is None:
        return Request(told("HF.CELLDEL", command.name, *words), lambda reply: written(reply, None), repeats=False)
    if command.keep is not None:
        words += ("KEEP", milliseconds(command.keep))
    packed = told("HF.CELLSET", command.name, value, *words)
    return Request(packed, lambda reply: written(reply, value), repeats=False)


def written(reply: Any, value: bytes | None) -> cmd.CellValue | cmd.Mismatch:
    return cmd.Mismatch(reply[1]) if reply[0] == b"mismatch" else cmd.CellValue(value, reply[1])


# Maps


def seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def party(found: dict[bytes, Any] | None) -> Party | None:
    """A holder or waiter; None where there is none, or where we may not see it."""
    if found is None:
        return None
    text = {name: found[name.encode()].decode() for name in ("claim", "owner", "app", "host", "thread", "note", "name")}
    return Party(
        **text,
        pid=found[b"pid"],
        since=found[b"since"] / 1000,
        age=found[b"age"] / 1000,
        mode="shared" if found[b"mode"] == b"shared" else "exclusive",
        subtree=bool(found[b"subtree"]),
        token=found[b"token"],
        slot=found[b"slot"],
    )


def link(found: dict[bytes, Any]) -> Link:
    text = {name: found[name.encode()].decode() for name in ("owner", "app", "host", "thread", "holds", "waits_for")}
    return Link(**text, pid=found[b"pid"])


def lock(found: dict[bytes, Any]) -> LockInfo:
    return LockInfo(
        found[b"kind"].decode(),
        found[b"name"].decode(),
        tuple(who for each in found[b"holders"] if (who := party(each)) is not None),
        tuple(who for each in found[b"waiters"] if (who := party(each)) is not None),
        found[b"limit"],
    )


def event(found: dict[bytes, Any]) -> LockEvent:
    text: dict[str, Any] = {
        name: found[name.encode()].decode() for name in ("type", "kind", "name", "owner", "claim", "mode", "detail")
    }
    return LockEvent(**text, at=found[b"at"] / 1000, token=found[b"token"])


ENCODERS: dict[type, Callable[[Any], Request | Step]] = {
    cmd.Renew: _renew,
    cmd.Close: _close,
    cmd.Enter: _enter,
    cmd.Look: _look,
    cmd.OwnClaims: _own_claims,
    cmd.Release: _release,
    cmd.Leave: _leave,
    cmd.HandOver: _hand_over,
    cmd.Adopt: _adopt,
    cmd.Inspect: _inspect,
    cmd.CellGet: _cell_get,
    cmd.CellSet: _cell_set,
    cmd.Subscribe: _watch,
    cmd.Unsubscribe: _unwatch,
    cmd.Fetch: _fetch,
    cmd.RaiseTokens: _raise,
}
"""What makes the request of a command that it is on the wire."""
