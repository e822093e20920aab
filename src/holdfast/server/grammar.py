"""What the arguments of a request mean, and what they must not be."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.core.names import check_name
from holdfast.errors import InvalidRequest
from holdfast.server.frames import Frame
from holdfast.server.limits import Limits
from holdfast.server.wire_error import InvalidValue, WireError

LOCK, SEMAPHORE, CELL, NAMESPACE = "holdfast.lock", "holdfast.semaphore", "holdfast.cell", "holdfast."

PLAIN_NAME = "[A-Za-z0-9_:-][A-Za-z0-9_:.-]{0,511}"
"""A name that is no path and that nobody has to look at twice."""
MOST_SEGMENTS = 32
"""Of a path: the table knows of every name what is above it."""
_PLAIN_NAME = re.compile(PLAIN_NAME.encode())
_SESSION = re.compile(rb"[A-Za-z0-9_]{8,64}")
_SECRET = re.compile(rb"[A-Za-z0-9_-]{22,128}")
LONGEST_SUFFIX = 32
_SUFFIX = re.compile(rb"[A-Za-z0-9_]{1,%d}" % LONGEST_SUFFIX)
_WATCH = re.compile(rb"[A-Za-z0-9_-]{1,64}")
_TICKET = re.compile(rb"[\x21-\x7e]{1,128}")
_KIND = re.compile(rb"[A-Za-z0-9_-]{1,64}\.[A-Za-z0-9_.-]{0,63}")

_kinds: dict[bytes, str] = {}
"""Kinds seen lately, so that a million claims share a few strings."""

Convert = Callable[[bytes, Limits], Any]
Options = Mapping[bytes, tuple[str, Convert | None]]
"""What a command takes by name: the field it sets and how its value is read; a flag has no value."""


def invalid(what: str, value: bytes, rule: str) -> InvalidValue:
    """A value breaks a rule."""
    return InvalidValue(what, repr(value[:60])[1:] + ("…" if len(value) > 60 else ""), rule)


def expect(frame: Frame, least: int, most: int) -> None:
    """Refuse a wrong number of arguments; the command itself counts."""
    if not least <= len(frame) <= most:
        raise WireError("ERR", f"wrong number of arguments for '{frame[0].decode(errors='replace')}', see docs/wire.md")


def claim_id(raw: bytes, limits: Limits) -> str:
    """The id of a claim."""
    claim_session(raw)
    return raw.decode()


def break_cursor(raw: bytes, limits: Limits) -> tuple[tuple[int, str], int]:
    """Where a break goes on: after which order and id, and up to which token."""
    upto, _, place = raw.partition(b" ")
    order, _, id_ = place.partition(b" ")
    if not (upto.isdigit() and order.isdigit() and len(raw) <= 200):
        raise invalid("cursor", raw, "it is what the last answer ended with")
    return (int(order), claim_id(id_, limits)), int(upto)


def plain_name(raw: bytes) -> str | None:
    """A name that is no path and that nobody has to look at twice; None if it is another, or none."""
    return raw.decode() if _PLAIN_NAME.fullmatch(raw) else None


def name(raw: bytes) -> str:
    """The name of a lock or cell."""
    plain = plain_name(raw)
    if plain is not None:
        return plain
    if raw.count(b"/") >= MOST_SEGMENTS:
        raise invalid("name", raw, f"a path has at most {MOST_SEGMENTS} segments here")
    try:
        return check_name(raw.decode())
    except InvalidRequest as error:
        raise invalid("name", raw, error.rule) from None


def prefix(raw: bytes) -> str:
    """The start of names: empty, a name, or a name and a final slash."""
    if not raw:
        return ""
    return name(raw[:-1]) + "/" if raw.endswith(b"/") else name(raw)


def kind(raw: bytes, limits: Limits) -> str:
    """A kind with its namespace."""
    found = _kinds.get(raw)
    if found is None:
        if not _KIND.fullmatch(raw) or raw.endswith(b"."):
            raise invalid("kind", raw, "a kind has a namespace, as in holdfast.lock")
        if len(_kinds) >= 1000:
            _kinds.clear()
        found = _kinds[raw] = raw.decode()
    return found


def kinds(raw: bytes, limits: Limits) -> str:
    """A kind, or all kinds of a namespace."""
    if raw.endswith(b".") and _KIND.fullmatch(raw) and raw.count(b".") == 1:
        return raw.decode()
    return kind(raw, limits)


def is_counted(kind: str) -> bool:
    """Whether claims of this kind are for permits."""
    return kind.endswith(".semaphore")


def cursor(raw: bytes, limits: Limits) -> tuple[str, str]:
    """Where a listing goes on: what the last part of it said."""
    if len(raw) > 1024 or b" " not in raw:
        raise invalid("CURSOR", raw, "it is what HF.LIST answered before")
    kind, _, name = raw.decode().partition(" ")
    return kind, name


def text(raw: bytes, limits: Limits) -> str:
    """Words for people."""
    if len(raw) > limits.text:
        raise invalid("text", raw, f"it has {len(raw)} bytes, the limit text is {limits.text}")
    return raw.decode()


def whole(raw: bytes, limits: Limits | None = None) -> int:
    """A number under 2^53."""
    if not raw.isdigit() or len(raw) > 16 or int(raw) >= 2**53:
        raise invalid("number", raw, "a whole number from 0 to 2^53 - 1 is needed here")
    return int(raw)


def positive(raw: bytes, limits: Limits | None = None) -> int:
    """A number from 1."""
    number = whole(raw)
    if number < 1:
        raise invalid("number", raw, "it has to be at least 1")
    return number


def permits(raw: bytes, limits: Limits) -> int:
    """The limit of a semaphore."""
    number = positive(raw)
    if number > 1_000_000:
        raise invalid("LIMIT", raw, "a semaphore has at most 1000000 permits")
    return number


def milliseconds(raw: bytes, limits: Limits) -> float:
    """A duration, in seconds. No longer than ten years: times have to be added to it."""
    number = whole(raw)
    if number > 315_360_000_000:
        raise invalid("duration", raw, "at most ten years, in ms")
    return number / 1000


def lasting(raw: bytes, limits: Limits) -> float:
    """A duration of at least 1 ms, in seconds."""
    positive(raw)
    return milliseconds(raw, limits)


def session_id(raw: bytes) -> str:
    if not _SESSION.fullmatch(raw):
        raise invalid("session", raw, "8 to 64 of A-Z a-z 0-9 _")
    return raw.decode()


def secret(raw: bytes) -> bytes:
    if not _SECRET.fullmatch(raw):
        # It is not shown: it may be one.
        raise WireError("HFINVALID", "secret: 22 to 128 of A-Z a-z 0-9 _ -, at least 128 random bits")
    return raw


def claim_session(raw: bytes) -> str:
    """The session in the id of a claim."""
    session, _, suffix = raw.rpartition(b"-")
    if not (_SESSION.fullmatch(session) and _SUFFIX.fullmatch(suffix)):
        raise invalid("claim", raw, "its id is that of its session, '-', and 1 to 32 of A-Z a-z 0-9 _")
    return session.decode()


def watch_id(raw: bytes) -> str:
    if not _WATCH.fullmatch(raw):
        raise invalid("watch", raw, "1 to 64 of A-Z a-z 0-9 _ -")
    return raw.decode()


def ticket(raw: bytes) -> str:
    if not _TICKET.fullmatch(raw):
        raise WireError("HFINVALID", "ticket: 1 to 128 visible ASCII characters, the SHA-256 of a secret")
    return raw.decode()


def options(frame: Frame, start: int, known: Options, limits: Limits) -> dict[str, Any]:
    """The options from `start` on, by field. An unknown one is an error: it may have mattered."""
    found: dict[str, Any] = {}
    at, end = start, len(frame)
    while at < end:
        option = known.get(frame[at]) or known.get(frame[at].upper())
        if option is None:
            raise WireError(
                "ERR",
                f"unknown option {frame[at][:60].decode(errors='replace')!r} for '{frame[0].decode(errors='replace')}'",
            )
        field, convert = option
        if field in found:
            raise WireError("ERR", f"option {frame[at].decode()} is given twice")
        if convert is None:
            found[field] = True
            at += 1
        else:
            if at + 1 >= end:
                raise WireError("ERR", f"option {frame[at].decode()} needs a value")
            try:
                found[field] = convert(frame[at + 1], limits)
            except InvalidValue as error:
                raise error.of(frame[at].upper().decode()) from None
            at += 2
    return found
