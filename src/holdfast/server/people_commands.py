"""HF.INSPECT, HF.LIST, HF.BREAK, HF.WATCH, HF.CELLWATCH, HF.FETCH, HF.UNWATCH."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from holdfast.core.table import cells, commands
from holdfast.server import answers, grammar, listing
from holdfast.server.frames import Frame
from holdfast.server.resp import OK
from holdfast.server.session_commands import own_session
from holdfast.server.wire_error import WireError, may_not_read

if TYPE_CHECKING:
    from holdfast.server.connection import Connection

log = logging.getLogger("holdfast.server")

KIND: grammar.Options = {b"KIND": ("kind", grammar.kind)}
KINDS: grammar.Options = {b"KIND": ("kind", grammar.kinds)}
LIST: grammar.Options = {**KINDS, b"COUNT": ("count", grammar.positive), b"CURSOR": ("cursor", grammar.cursor)}
BREAK: grammar.Options = {**KIND, b"FORCE": ("force", None), b"CURSOR": ("cursor", grammar.break_cursor)}
FETCH: grammar.Options = {b"WAIT": ("wait", grammar.milliseconds)}

USUAL = 1_000
"""Claims in one part of a listing, unless told: what is shown takes others' time."""
MANY = 1_000
"""Claims whose description takes long enough to give others their turn afterwards."""


def readable(connection: Connection, prefix: str) -> str:
    """The prefix, if everything that it shows may be read."""
    if not connection.user.may_read(prefix):
        raise may_not_read(prefix)
    return prefix


def inspect(connection: Connection, frame: Frame) -> bytes:
    """HF.INSPECT name [KIND kind]."""
    grammar.expect(frame, 2, 4)
    name = readable(connection, grammar.name(frame[1]))
    service = connection.service
    options = grammar.options(frame, 2, KIND, service.limits)
    info = listing.one_lock(service, options.get("kind", grammar.LOCK), name, service.limits.list)
    connection.spent = len(info.holders) + len(info.waiters) > MANY
    return connection.resp.encode(answers.lock(info))


def list_locks(connection: Connection, frame: Frame) -> bytes:
    """HF.LIST [prefix] [KIND kind] [COUNT n] [CURSOR text]. Shows what the user may read."""
    service = connection.service
    if not connection.user.reads:
        raise WireError("NOPERM", "no right to read any name")
    with_prefix = len(frame) % 2 == 0
    prefix = grammar.prefix(frame[1]) if with_prefix else ""
    options = grammar.options(frame, 2 if with_prefix else 1, LIST, service.limits)
    most = min(options.get("count", USUAL), service.limits.list)
    kind = options.get("kind", grammar.NAMESPACE)
    page = listing.locks_under(service, connection.user, prefix, kind, most, options.get("cursor", ("", "")))
    # Others have their turn: even a short one may have passed many claims that are dead.
    connection.spent = True
    cursor = None if page.cursor is None else " ".join(page.cursor)
    locks = [answers.lock(info) for info in page.locks]
    return connection.resp.encode(["locks", int(page.cursor is not None), locks, cursor])


def break_lock(connection: Connection, frame: Frame) -> bytes:
    """HF.BREAK name [KIND kind] [FORCE] [CURSOR text]."""
    grammar.expect(frame, 2, 7)
    service = connection.service
    name = grammar.name(frame[1])
    if not name.startswith(connection.user.breaks):
        raise WireError("NOPERM", f"no right to break {name!r}")
    options = grammar.options(frame, 2, BREAK, service.limits)
    kind, force = options.get("kind", grammar.LOCK), options.get("force", False)
    usage = service.table.usage.total
    before = usage.withdrawn
    after, upto = options.get("cursor", ((-1, ""), None))
    told = service.step(commands.Break(kind, name, force, service.work_per_step, after, upto))
    connection.spent = told.after is not None
    # Whoever is told to go once more, or made to, has its tombstone since the first time: it is one grant.
    service.tally.broken += usage.withdrawn - before
    for id_ in told.claims:
        row = service.table.rows.get(id_)
        if row is not None:
            service.expect_death(row.dies_at)
    log.info(
        "lock broken",
        extra={"lock": name, "kind": kind, "force": force, "user": connection.user.name, "claims": len(told.claims)},
    )
    return answers.encode(told, connection.resp, connection.user)


def subscribe(connection: Connection, session: str, watch: str, kind: str, prefix: str) -> bytes:
    """Begin a watch, if there is room for another, and its id is not another watch's."""
    service = connection.service
    known = service.table.watches.get((session, watch))
    if known is not None and (known.kind, known.prefix) != (kind, prefix):
        # What the first has collected would be shown as the second's, to whoever may read only that.
        raise WireError(
            "HFINVALID", f"watch {watch!r} is on {known.prefix!r} ({known.kind}) already: another one needs its own id"
        )
    if known is None:
        service.quotas.watch(session, wide=not kind.startswith("cell:"))
    service.need_room()
    reply = service.step(commands.Subscribe(session, watch, kind, prefix))
    return answers.encode(reply, connection.resp, connection.user)


def watch(connection: Connection, frame: Frame) -> bytes:
    """HF.WATCH session watch prefix [KIND kind]."""
    grammar.expect(frame, 4, 6)
    session, id_ = own_session(connection, frame[1]), grammar.watch_id(frame[2])
    prefix = readable(connection, grammar.prefix(frame[3]))
    options = grammar.options(frame, 4, KINDS, connection.service.limits)
    return subscribe(connection, session, id_, options.get("kind", grammar.NAMESPACE), prefix)


def cell_watch(connection: Connection, frame: Frame) -> bytes:
    """HF.CELLWATCH session watch name [KIND kind]."""
    grammar.expect(frame, 4, 6)
    session, id_ = own_session(connection, frame[1]), grammar.watch_id(frame[2])
    name = readable(connection, grammar.name(frame[3]))
    options = grammar.options(frame, 4, KIND, connection.service.limits)
    return subscribe(connection, session, id_, cells.watch_kind(options.get("kind", grammar.CELL)), name)


def fetch(connection: Connection, frame: Frame) -> bytes | None:
    """HF.FETCH session watch after [WAIT ms]."""
    grammar.expect(frame, 4, 6)
    service = connection.service
    session, id_ = own_session(connection, frame[1]), grammar.watch_id(frame[2])
    after = grammar.whole(frame[3])
    wait = grammar.options(frame, 4, FETCH, service.limits).get("wait", 0.0)
    subject = service.table.watches.get((session, id_))
    if subject is not None:
        readable(connection, subject.prefix)
    reply = service.fetch(session, id_, after)
    if wait and isinstance(reply, commands.Letters) and not (reply.events or reply.lost):
        service.fetch_now(session, id_)
        service.waits.fetch(session, id_, after, wait, connection)
        connection.hold()
        return None
    connection.spent = True
    return answers.encode(reply, connection.resp, connection.user)


def unwatch(connection: Connection, frame: Frame) -> bytes:
    """HF.UNWATCH session watch."""
    grammar.expect(frame, 3, 3)
    service = connection.service
    session, id_ = own_session(connection, frame[1]), grammar.watch_id(frame[2])
    if (session, id_) in service.table.watches:
        service.step(commands.Unsubscribe(session, id_))
        service.fetch_now(session, id_)
    return OK


COMMANDS = {
    b"HF.INSPECT": inspect,
    b"HF.LIST": list_locks,
    b"HF.BREAK": break_lock,
    b"HF.WATCH": watch,
    b"HF.CELLWATCH": cell_watch,
    b"HF.FETCH": fetch,
    b"HF.UNWATCH": unwatch,
}
