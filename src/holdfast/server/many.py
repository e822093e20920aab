"""HF.MANY: what several tasks of a client ask for at the same time, as one request.

Each line of it is a step, and is answered as the HF.ACQUIRE or HF.RELEASE that says the same. One request of many lines
costs a third less than as many requests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from holdfast.core.table.changes import PutRow
from holdfast.core.table.shortcuts import Plain
from holdfast.model import Claim
from holdfast.server import grammar
from holdfast.server.frames import Frame
from holdfast.server.gathering import ACQUIRE, MOST_COST, RELEASE, Pace
from holdfast.server.resp import OK
from holdfast.server.session_commands import no_session
from holdfast.server.wire_error import WireError

if TYPE_CHECKING:
    from holdfast.server.connection import Connection

MOST_STEPS = 256
"""Lines of a request."""
MOST_A_TURN = 16
"""How many of one connection are carried out before others have their turn."""
MOST_APART = 32
"""How many lines that are not plain are carried out, at most: as many as there could be requests in one turn."""
OTHERS_FIRST = WireError("HFTURN", "others have their turn first: send this step again")

_PLAIN = re.compile(rf"([+?])([A-Za-z0-9_]{{1,{grammar.LONGEST_SUFFIX}}})\t({grammar.PLAIN_NAME})\t([ -~]+)\t([ -~]*)")
"""A line that takes a lock, with nothing in it that somebody would have to look at twice."""


def many(connection: Connection, frame: Frame) -> bytes:
    """HF.MANY session kind steps."""
    grammar.expect(frame, 4, 4)
    service = connection.service
    if frame[1] == b"*" and not connection.session:
        raise no_session(connection)
    session = connection.session if frame[1] == b"*" else grammar.session_id(frame[1])
    kind = grammar.kind(frame[2], service.limits)
    if frame[3].count(b"\n") >= MOST_STEPS:
        raise WireError("ERR", f"a request has at most {MOST_STEPS} steps")
    lines = frame[3].decode().split("\n")
    speaks = session == connection.session and not connection.side
    replies: list[bytes] = []
    pace, apart, room = Pace(), 0, service.limits.output // 4 - connection.unsaid
    most = service.cost + MOST_COST
    while (at := len(replies)) < len(lines):
        if speaks and pace.tries(at):
            replies += together(connection, kind, lines[at:])
            pace.went(len(replies), len(replies) - at)
        elif apart < MOST_APART and room > 0 and service.cost < most:
            apart += 1
            replies.append(alone(connection, session, kind, lines[at]))
            room -= len(replies[-1])
        else:
            replies += [connection.error(OTHERS_FIRST)] * (len(lines) - at)
    connection.steps += len(lines)
    service.tally.commands -= 1  # it is its steps, and each of them was counted
    connection.spent = connection.steps >= MOST_A_TURN
    return b"*%d\r\n%b" % (len(replies), b"".join(replies))


def together(connection: Connection, kind: str, lines: Sequence[str]) -> list[bytes]:
    """Take the first of these steps, as many as are plain; their replies. A grant is its token."""
    done = connection.service.gathering.take(plain_steps(connection, kind, lines))
    return [b":%d\r\n" % change.row.order if type(change) is PutRow else OK for change in done]


def plain_steps(connection: Connection, kind: str, lines: Sequence[str]) -> Iterator[Plain]:
    """What these lines ask for, until one of them is not plain."""
    service, session, holds = connection.service, connection.session, connection.user.holds
    longest = service.limits.text
    room = 0 if grammar.is_counted(kind) else service.quotas.claims_left(session)
    for line in lines:
        if line[:1] == "-":
            yield session, f"{session}-{line[1:]}", None
            continue
        found = _PLAIN.fullmatch(line)
        if found is None or room <= 0:
            return
        room -= 1
        mark, suffix, name, owner, thread = found.groups()
        id_, owner = f"{session}-{suffix}", f"{session}/{owner}"
        if len(owner) > longest or len(thread) > longest or not name.startswith(holds):
            return
        waits = mark == "+"
        yield session, id_, Claim(
            id_, session, owner, kind, name, "exclusive", False, 0, waits, False, None, "", thread
        )  # fmt: skip


def alone(connection: Connection, session: str, kind: str, line: str) -> bytes:
    """Take one step as the request that says the same."""
    try:
        frame = request(session, kind, line)
    except WireError as error:
        return connection.error(error)
    reply = connection.commands.carry_out(connection, frame)
    assert reply is not None, "only BLOCK is answered later"
    return reply


def request(session: str, kind: str, line: str) -> Frame:
    """The HF.ACQUIRE or HF.RELEASE that a line stands for."""
    mark, (suffix, *terms) = line[:1], line[1:].split("\t")
    id_ = f"{session}-{suffix}".encode()
    if mark == "-" and not terms:
        return [RELEASE, id_]
    if mark not in ("+", "?") or len(terms) != 3:
        raise WireError("ERR", "a step is +suffix, name, owner, thread; ?suffix and the same; or -suffix; tabs between")
    name, owner, thread = terms
    wait = (b"WAIT", b"0") if mark == "?" else ()
    told = b"OWNER", f"{session}/{owner}".encode(), b"THREAD", thread.encode(), b"KIND", kind.encode()
    return [ACQUIRE, id_, name.encode(), *told, *wait]


COMMANDS = {b"HF.MANY": many}
