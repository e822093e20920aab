"""HF.OPEN, HF.RESUME, HF.RENEW, HF.CLAIMS, HF.CLOSE, HF.HELLO, HF.RAISE."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from typing import TYPE_CHECKING

from holdfast import model
from holdfast.core.table import commands
from holdfast.core.table.changes import DropRow, DropSession
from holdfast.core.table.rows import Session
from holdfast.server import answers, grammar
from holdfast.server.frames import Frame
from holdfast.server.resp import OK, OVER
from holdfast.server.wire_error import WireError

if TYPE_CHECKING:
    from holdfast.server.connection import Connection

log = logging.getLogger("holdfast.server")

PROTO = 1
ROLE: grammar.Options = {b"SIDE": ("side", None), b"QUIET": ("quiet", None)}
ABOUT: grammar.Options = {
    b"APP": ("app", grammar.text),
    b"HOST": ("host", grammar.text),
    b"PID": ("pid", grammar.whole),
    **ROLE,
}


AFTER: grammar.Options = {b"AFTER": ("after", grammar.claim_id)}
MOST_GONE = 1_000
"""Claims that were taken from a session, in one answer."""


class NoSession(Exception):
    """There is no such session (any more)."""


def digest(secret: bytes) -> str:
    """What the server keeps of a secret."""
    return hashlib.sha256(secret).hexdigest()


def own_session(connection: Connection, raw: bytes) -> str:
    """The session that a request is about, if the connection speaks for it in any role."""
    if raw == b"*":
        if not connection.session:
            raise no_session(connection)
        return connection.session
    session = grammar.session_id(raw)
    if session != connection.session:
        raise not_attached(connection, session)
    return session


def no_session(connection: Connection) -> Exception:
    """Why a request for the session of this connection is not carried out: it has none, or none any more."""
    if connection.is_bereft:
        return NoSession()
    return WireError("HFDETACHED", "this connection speaks for no session: HF.OPEN or HF.RESUME one first")


def not_attached(connection: Connection, session: str) -> Exception:
    """Why a request for this session is not carried out on this connection."""
    service = connection.service
    known = service.table.sessions.get(session)
    if known is None or known.expires_at <= service.now:
        return NoSession()
    if session == connection.session:
        return WireError("HFDETACHED", "this is the session's side connection, which makes no claims")
    return WireError("HFDETACHED", "this connection does not speak for that session: HF.RESUME it here first")


def open_session(connection: Connection, frame: Frame) -> bytes:
    """HF.OPEN session secret ttl [APP text] [HOST text] [PID n] [SIDE] [QUIET]."""
    grammar.expect(frame, 4, 64)
    service, limits = connection.service, connection.service.limits
    chosen = None
    id_ = "s" + secrets.token_hex(6) if frame[1] == b"*" else grammar.session_id(frame[1])
    if frame[2] == b"*":
        chosen = secrets.token_urlsafe(16)
    secret = grammar.secret(frame[2]) if chosen is None else chosen.encode()
    ttl_ms = grammar.whole(frame[3])
    if not limits.min_ttl <= ttl_ms <= limits.max_ttl:
        raise grammar.invalid("ttl", frame[3], f"{limits.min_ttl} to {limits.max_ttl} ms")
    about = grammar.options(frame, 4, ABOUT, limits)
    known = service.table.sessions.get(id_)
    proof = digest(secret)
    if known is not None and not hmac.compare_digest(known.digest, proof):
        raise WireError("HFSECRET", "the session's secret is another one")
    user = connection.user.name if known is None else known.user
    ttl = max(ttl_ms / 1000, service.store.shortest_ttl)
    session = Session(id_, ttl, 0.0, about.get("app", ""), about.get("host", ""), about.get("pid", 0), proof, user)
    if known is None:
        service.quotas.session(session)
    service.need_room()
    reply = service.step(commands.Open(session))
    if isinstance(reply, commands.SessionOver):
        return OVER
    service.attach(connection, id_, about.get("side", False), about.get("quiet", False))
    service.expect_death(service.now + reply.ttl)
    if known is None:
        log.debug("session opened", extra={"session": id_, "peer": connection.peer, "user": connection.user.name})
    return connection.resp.encode(["open", answers.ms(reply.ttl), id_, chosen])


def resume(connection: Connection, frame: Frame) -> bytes:
    """HF.RESUME session secret [SIDE] [QUIET]."""
    grammar.expect(frame, 3, 5)
    service = connection.service
    id_, secret = grammar.session_id(frame[1]), grammar.secret(frame[2])
    role = grammar.options(frame, 3, ROLE, service.limits)
    known = service.table.sessions.get(id_)
    if known is None or known.expires_at <= service.now:
        return OVER
    if not hmac.compare_digest(known.digest, digest(secret)):
        raise WireError("HFSECRET", "the session's secret is another one")
    service.attach(connection, id_, role.get("side", False), role.get("quiet", False))
    return connection.resp.encode(["open", answers.ms(known.ttl), id_, None])


def renew(connection: Connection, frame: Frame) -> bytes:
    """HF.RENEW session [AFTER claim]."""
    grammar.expect(frame, 2, 4)
    service = connection.service
    session = own_session(connection, frame[1])
    after = grammar.options(frame, 2, AFTER, service.limits).get("after", "")
    reply = service.step_lazily(commands.Renew(session, after, MOST_GONE))
    if isinstance(reply, commands.Renewed) and reply.more:
        connection.spent = True
    return answers.encode(reply, connection.resp, connection.user)


def own_claims(connection: Connection, frame: Frame) -> bytes:
    """HF.CLAIMS session [AFTER claim]."""
    grammar.expect(frame, 2, 4)
    service = connection.service
    session = own_session(connection, frame[1])
    after = grammar.options(frame, 2, AFTER, service.limits).get("after", "")
    # Others have their turn: each page takes a look at all of them.
    connection.spent = True
    return answers.encode(service.step(commands.OwnClaims(session, after)), connection.resp, connection.user)


def close(connection: Connection, frame: Frame) -> bytes:
    """HF.CLOSE session. What it held is free at once; passing it on is done in bounded steps."""
    grammar.expect(frame, 2, 2)
    service = connection.service
    session = own_session(connection, frame[1])
    done, changes = service.run(commands.Close(session, service.work_per_step), service.deaths.answer)
    service.batches.urgent = service.batches.urgent or bool(changes)
    for change in changes:
        if type(change) is DropRow:
            service.waits.forget(change.row.id)
        elif type(change) is DropSession:
            quiet, connection.quiet = connection.quiet, True
            service.end_session(session, "it was closed")
            connection.quiet = quiet
    if done.more:
        service.expect_death(service.now)
    return OK


def hello(connection: Connection, frame: Frame) -> bytes:
    """HF.HELLO proto=1."""
    grammar.expect(frame, 2, 2)
    word, _, version = frame[1].partition(b"=")
    if word != b"proto" or not version.isdigit():
        raise WireError("ERR", "say HF.HELLO proto=1")
    if int(version[:9]) != PROTO:
        raise WireError("HFPROTO", f"this server speaks proto={PROTO}")
    service, limits = connection.service, connection.service.limits
    about = service.about
    return connection.resp.encode({
        "server": "holdfast", "version": about.version, "proto": PROTO, "instance": about.instance,
        "store": about.store, "durable": int(about.durable), "replicated": int(about.replicated),
        "min_ttl": limits.min_ttl, "max_ttl": limits.max_ttl, "max_note": limits.text, "max_value": limits.value,
        "max_pipeline": limits.pipeline,
    })  # fmt: skip


def raise_tokens(connection: Connection, frame: Frame) -> bytes:
    """HF.RAISE above."""
    grammar.expect(frame, 2, 2)
    above = grammar.whole(frame[1])
    if "" not in connection.user.breaks:
        raise WireError("NOPERM", "raising the tokens needs the right to break every name")
    if above > model.HIGHEST_RAISE:
        raise grammar.invalid("number", frame[1], f"at most {model.HIGHEST_RAISE}, which leaves 2^40 tokens")
    connection.service.step(commands.RaiseTokens(above))
    log.info("tokens raised", extra={"above": above, "user": connection.user.name})
    return OK


COMMANDS = {
    b"HF.OPEN": open_session,
    b"HF.RESUME": resume,
    b"HF.RENEW": renew,
    b"HF.CLAIMS": own_claims,
    b"HF.CLOSE": close,
    b"HF.HELLO": hello,
    b"HF.RAISE": raise_tokens,
}
