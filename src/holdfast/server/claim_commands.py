"""HF.ACQUIRE, HF.LOOK, HF.RELEASE, HF.LEAVE, HF.HANDOVER, HF.ADOPT."""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING

from holdfast.core.table import commands
from holdfast.model import Claim, Gone, Granted, Place
from holdfast.server import answers, grammar
from holdfast.server.frames import Frame
from holdfast.server.resp import OK
from holdfast.server.session_commands import no_session, not_attached
from holdfast.server.wire_error import LimitReached, WireError

if TYPE_CHECKING:
    from holdfast.server.connection import Connection
    from holdfast.server.service import Service

log = logging.getLogger("holdfast.server")

UNANSWERED: grammar.Options = {b"UNANSWERED": ("unanswered", None)}


def own_claim(connection: Connection, raw: bytes, sides_too: bool = False) -> tuple[str, str]:
    """A claim's id and its session, if the connection speaks for that; nobody can name another's claim."""
    head, _, tail = raw.rpartition(b"-")
    if not (tail.isalnum() and len(tail) <= grammar.LONGEST_SUFFIX):
        grammar.claim_session(raw)
    session = head.decode()
    if session != connection.session or (connection.side and not sides_too):
        raise not_attached(connection, grammar.claim_session(raw))
    # Its own text of the session's id, so that a million claims share it.
    return raw.decode(), connection.session


def new_claim(connection: Connection, raw: bytes) -> tuple[str, str, str | None]:
    """The same for a claim that may have no id yet; the third is the id, if it was chosen here."""
    if raw != b"*":
        return *own_claim(connection, raw), None
    if not connection.session:
        raise no_session(connection)
    if connection.side:
        raise not_attached(connection, connection.session)
    chosen = f"{connection.session}-{secrets.token_hex(4)}"
    return chosen, connection.session, chosen


def asked(claim: Claim) -> tuple[object, ...]:
    """What a repeat of a claim has in common with it."""
    return claim.kind, claim.name, claim.mode, claim.subtree, claim.limit


def admit(service: Service, claim: Claim) -> None:
    """Refuse a claim for which there is no room, and one whose id is another claim's."""
    table, limits = service.table, service.limits
    known = table.rows.get(claim.id)
    if known is not None and asked(known.claim) != asked(claim):
        raise WireError(
            "HFINVALID",
            f"claim {claim.id!r} is on {known.claim.name!r} ({known.claim.kind}) already: another lock, or another "
            "way to hold it, needs a claim id of its own",
        )
    service.quotas.claim(claim)
    line = table.lines.get((claim.kind, claim.name))
    if line is not None and claim.waits and len(line.queue) >= limits.waiters_per_lock and claim.id not in line.queue:
        raise LimitReached("waiters_per_lock", limits.waiters_per_lock, "try again later, or with WAIT 0")


def acquire(connection: Connection, frame: Frame) -> bytes | None:
    """HF.ACQUIRE claim name [options]."""
    if len(frame) < 3:
        grammar.expect(frame, 3, 64)
    service = connection.service
    id_, session, chosen = new_claim(connection, frame[1])
    name = grammar.name(frame[2])
    if not name.startswith(connection.user.holds):
        raise WireError("NOPERM", f"no right to hold {name!r}")
    terms = service.terms.acquire(frame)
    claim = terms.claim(id_, session, name)
    service.need_room()
    admit(service, claim)
    reply = service.enter(claim)
    tally = service.tally
    if type(reply) is Granted:
        tally.grants += 1
        if reply.hold_left is not None:
            service.expect_death(service.now + reply.hold_left)
        elif reply.slot is None and chosen is None:
            return connection.resp.granted % reply.token
    elif type(reply) is Place:
        tally.queued += 1
        service.waits.begin(id_, service.now, terms.wait, connection if terms.blocks else None)
        if terms.blocks:
            connection.chosen = chosen
            connection.hold()
            return None
    elif type(reply) is commands.Deadlocked:
        tally.deadlocks += 1
        log.info("deadlock refused", extra={"lock": name, "session": session})
    return answers.encode(reply, connection.resp, connection.user, chosen)


def known(service: Service, id_: str, session: str) -> Claim:
    """The claim as it is in the table; one that is not there is known by its id alone."""
    row = service.table.rows.get(id_)
    return Claim(id_, session, "", "", "") if row is None else row.claim


def look(connection: Connection, frame: Frame) -> bytes:
    """HF.LOOK claim."""
    grammar.expect(frame, 2, 2)
    service = connection.service
    reply = service.step(commands.Look(known(service, *own_claim(connection, frame[1], sides_too=True))))
    return answers.encode(reply, connection.resp, connection.user)


def release(connection: Connection, frame: Frame) -> bytes:
    """HF.RELEASE claim."""
    if len(frame) != 2:
        grammar.expect(frame, 2, 2)
    service = connection.service
    # An id begins with its session's: a row of this session can be named by nobody else.
    row = service.table.rows.get(frame[1].decode(errors="replace"))
    if row is None or row.claim.session != connection.session or connection.side:
        id_, session = own_claim(connection, frame[1])
        reply = service.step(commands.Release(Claim(id_, session, "", "", "")))
    else:
        reply = service.release(row)
    if type(reply) is Gone:
        return answers.encode(reply, connection.resp, connection.user)
    if row is not None:
        service.tally.releases += 1
        service.tally.hold_seconds.add(service.now - row.since)
    return OK


def leave(connection: Connection, frame: Frame) -> bytes:
    """HF.LEAVE claim [UNANSWERED].

    Over the main connection no late acquire can follow, because requests keep their order and the
    former main connection was closed: it needs no tombstone.
    """
    grammar.expect(frame, 2, 3)
    service = connection.service
    id_, session = own_claim(connection, frame[1], sides_too=True)
    unanswered = bool(grammar.options(frame, 2, UNANSWERED, service.limits)) and connection.side
    remembered = id_ in service.table.tombstones.get(session, ())
    if unanswered and not remembered and not service.quotas.may_remember(session):
        # Too many to remember. What they are for is as well served by ending where a late acquire could come from.
        main = service.attachments.main(session)
        if main is not None:
            service.attachments.detach(main)
            service.waits.ended(main)
            main.close_after_output()
        unanswered = False
    blocked = service.waits.decided(id_)
    service.withdraw(known(service, id_, session), unanswered)
    if blocked is not None:
        blocked.answer(answers.encode(Gone("it was withdrawn"), blocked.resp, blocked.user))
    return OK


def hand_over(connection: Connection, frame: Frame) -> bytes:
    """HF.HANDOVER claim ticket."""
    grammar.expect(frame, 3, 3)
    service = connection.service
    claim = known(service, *own_claim(connection, frame[1]))
    service.need_room()
    reply = service.step(commands.HandOver(claim, grammar.ticket(frame[2])))
    return answers.encode(reply, connection.resp, connection.user)


def adopt(connection: Connection, frame: Frame) -> bytes:
    """HF.ADOPT claim source ticket name [options]."""
    grammar.expect(frame, 5, 64)
    service = connection.service
    id_, session, chosen = new_claim(connection, frame[1])
    grammar.claim_session(frame[2])
    ticket, name = grammar.ticket(frame[3]), grammar.name(frame[4])
    if not name.startswith(connection.user.holds):
        raise WireError("NOPERM", f"no right to hold {name!r}")
    claim = service.terms.read(frame, 5).claim(id_, session, name)
    service.need_room()
    admit(service, claim)
    reply = service.step(commands.Adopt(claim, frame[2].decode(), ticket))
    if type(reply) is Granted:
        service.tally.grants += 1
        if reply.hold_left is not None:
            service.expect_death(service.now + reply.hold_left)
    return answers.encode(reply, connection.resp, connection.user, chosen)


COMMANDS = {
    b"HF.ACQUIRE": acquire,
    b"HF.LOOK": look,
    b"HF.RELEASE": release,
    b"HF.LEAVE": leave,
    b"HF.HANDOVER": hand_over,
    b"HF.ADOPT": adopt,
}
