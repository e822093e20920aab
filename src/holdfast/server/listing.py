"""The locks as people see them: one, or a part of all that are in use. Never more than was asked for is looked at."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.core.table import commands
from holdfast.core.table.directory import Name
from holdfast.core.table.questions import OnName, Question, Under
from holdfast.core.table.rows import Row
from holdfast.model import LockInfo

if TYPE_CHECKING:
    from holdfast.server.service import Service
    from holdfast.server.users import User


MOST_LOOKED_AT = 4_000
"""Rows that are looked at for one part, most of them dead: about 10 ms."""
FRAME = 200
"""Bytes that a claim takes in an answer beside its texts, about."""


class Page(NamedTuple):
    """A part of a listing."""

    locks: tuple[LockInfo, ...]
    cursor: Name | None
    """After which name the next part begins; None if this was the last."""


def one_lock(service: Service, kind: str, name: str, most: int) -> LockInfo:
    """One lock, with at most so many of its claims: the first of them."""

    def answer(question: Question, now: float) -> Any:
        if type(question) is not OnName:
            return service.deaths.answer(question, now)
        return tuple(fitting(service, service.table.rows_on((kind, name), now, most), room(service))[0])

    info: LockInfo = service.run(commands.Inspect(kind, name), answer)[0]
    return info


def locks_under(service: Service, user: User, prefix: str, kind: str, most: int, after: Name = ("", "")) -> Page:
    """Locks in use that a user may read, with at most so many claims, and where to go on.

    One that has more claims, or claims with more text than fits into an answer, is shown with the first of them.
    """
    cursor: Name | None = None

    def answer(question: Question, now: float) -> Any:
        nonlocal cursor
        if type(question) is not Under:
            return service.deaths.answer(question, now)
        found: list[Row] = []
        last, left = after, room(service)
        enough = service.table.looked_at + MOST_LOOKED_AT
        for key in service.table.directory.shown(kind, prefix, user.reads, after):
            if service.table.looked_at >= enough:
                cursor = last
                break
            rows, size = fitting(service, service.table.rows_on(key, now, most), room(service))
            if not key[1] or (found and (len(found) + len(rows) > most or size > left)):
                cursor = last if key[1] else key
                break
            found += rows
            last, left = key, left - size
        return tuple(found)

    locks: tuple[LockInfo, ...] = service.run(commands.List(prefix, kind, most), answer)[0]
    return Page(locks, cursor)


def room(service: Service) -> int:
    """Bytes of one answer: from there on later requests of a connection wait."""
    return service.limits.output // 4


def fitting(service: Service, rows: Iterable[Row], most: int) -> tuple[list[Row], int]:
    """The first of these claims, as many as fit into so many bytes and at least one; and how many bytes they take."""
    sessions = service.table.sessions
    found: list[Row] = []
    taken = 0
    for row in rows:
        claim, session = row.claim, sessions.get(row.claim.session)
        size = FRAME + len(claim.owner) + len(claim.thread) + len(claim.note) + 2 * len(claim.name)
        size += len(session.app) + len(session.host) if session is not None else 0
        if found and taken + size > most:
            break
        found.append(row)
        taken += size
    return found, taken
