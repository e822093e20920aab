"""Handing a grant to another process: a ticket out, an adoption elsewhere."""

from __future__ import annotations

import hashlib
import re
import secrets

from holdfast.core.names import check_name
from holdfast.core.table.commands import Deadlocked, SessionOver, TooEntangled
from holdfast.errors import Deadlock, EngineFailure, InvalidRequest, LockLost, NotHeld
from holdfast.locks.ability import need_hand_over
from holdfast.locks.acquire import keep
from holdfast.locks.client import GRACE, Client
from holdfast.locks.hold import Entry, Hold
from holdfast.locks.owner import current_owner
from holdfast.model import Claim, Gone, Granted

START = "hf1"
FLAGS = re.compile(r"[xs]t?[0-9]{0,7}")


def digest(secret: str) -> str:
    """What the engine keeps of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


async def hand_over(client: Client, hold: Hold) -> str:
    """A text by which one other client may adopt this grant. Whoever has the text may; keep it secret.

    The sender holds on until then. The text is void when the sender's session ends.
    """
    hold.check()
    need_hand_over(client)
    secret = secrets.token_urlsafe(16)
    reply = await client.verbs.hand_over(hold.claim, digest(secret), client.until())
    if isinstance(reply, Gone):
        hold.lose(reply.reason)
        raise LockLost(hold.claim.name, hold.token, reply.reason)
    claim = hold.claim
    flags = ("x" if claim.mode == "exclusive" else "s") + ("t" if claim.subtree else "") + str(claim.limit or "")
    return " ".join((START, claim.id, secret, claim.kind, flags, claim.name))


def parse(text: object) -> tuple[str, str, str, str, str]:
    """The parts of a hand-over text."""
    parts = text.split(" ", 5) if isinstance(text, str) else []
    if len(parts) != 6 or parts[0] != START:
        raise InvalidRequest("text", "…", "this is not what hand_over() returned")
    _, source, secret, kind, flags, name = parts
    if not FLAGS.fullmatch(flags):
        raise InvalidRequest("text", "…", "this is not what hand_over() returned")
    check_name(name)
    return source, secret, kind, flags, name


async def adopt(client: Client, text: str, taken: list[Entry]) -> None:
    """Take over a grant that was handed over: once, with a higher token. NotHeld if there is nothing left to adopt.

    It is in `taken` from the moment that it is held, so that a caller that is interrupted on its way back can give
    it back.
    """
    client.io.check_caller()
    source, secret, kind, flags, name = parse(text)
    if not kind.startswith(client.kind("")):
        raise InvalidRequest("text", "…", f"it is from another namespace than {client.namespace!r}")
    need_hand_over(client)
    limit = flags.lstrip("xst")
    owner, thread = current_owner(client.io.task())
    # One deadline for all of it, whatever the engine is slow with.
    by = client.until()
    while True:
        session = await client.live_session(by)
        claim = Claim(
            f"{session.id}-{next(session.numbers)}", session.id, f"{session.id}/{owner}", kind, name,
            "exclusive" if flags[0] == "x" else "shared", "t" in flags, int(limit or 0),
            thread=thread,
        )  # fmt: skip
        entry = Entry(session, claim)
        client.unsettled.begin(entry)
        sent = client.io.now()
        try:
            reply = await client.verbs.adopt(claim, source, digest(secret), by)
            hold = keep(client, entry, reply, sent) if isinstance(reply, Granted) else None
            if hold is not None:
                taken.append(entry)
                return
            client.unsettled.end(entry)
        except BaseException:
            # An interrupt can come at any line, also at one where the hold is kept already.
            session.forget(claim.id)
            await client.io.shielded(client.withdraw(claim, True, by + GRACE))
            client.unsettled.end(entry)
            raise
        if isinstance(reply, SessionOver):
            client.session_ended(session, reply)
            continue
        if isinstance(reply, Gone):
            raise NotHeld(name, 0, reply.reason)
        if isinstance(reply, Deadlocked):
            raise Deadlock(name, reply.cycle)
        if isinstance(reply, TooEntangled):
            raise EngineFailure(str(client), reply.problem, "not done")
        raise LockLost(name, reply.token, "the session ran out while it was adopted")
