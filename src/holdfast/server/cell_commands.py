"""HF.CELLGET, HF.CELLSET, HF.CELLDEL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.table import commands
from holdfast.server import answers, grammar
from holdfast.server.frames import Frame
from holdfast.server.people_commands import KIND, readable
from holdfast.server.wire_error import WireError

if TYPE_CHECKING:
    from holdfast.server.connection import Connection

DELETE: grammar.Options = {**KIND, b"VERSION": ("version", grammar.whole)}
SET: grammar.Options = {**DELETE, b"KEEP": ("keep", grammar.lasting)}


def writable(connection: Connection, name: str) -> str:
    """The name, if the user may write its cell."""
    if not name.startswith(connection.user.holds):
        raise WireError("NOPERM", f"no right to write {name!r}")
    return name


def get(connection: Connection, frame: Frame) -> bytes:
    """HF.CELLGET name [KIND kind]."""
    grammar.expect(frame, 2, 4)
    name = readable(connection, grammar.name(frame[1]))
    options = grammar.options(frame, 2, KIND, connection.service.limits)
    reply = connection.service.step(commands.CellGet(options.get("kind", grammar.CELL), name))
    return answers.encode(reply, connection.resp, connection.user)


def put(connection: Connection, frame: Frame) -> bytes:
    """HF.CELLSET name value [VERSION n] [KEEP ms] [KIND kind]."""
    grammar.expect(frame, 3, 9)
    service, limits = connection.service, connection.service.limits
    name = writable(connection, grammar.name(frame[1]))
    if len(frame[2]) > limits.value:
        raise WireError("HFINVALID", f"the value has {len(frame[2])} bytes, the limit value is {limits.value}")
    options = grammar.options(frame, 3, SET, limits)
    kind = options.get("kind", grammar.CELL)
    user = connection.user.name
    service.quotas.cell(user, kind, name, frame[2])
    keep = options.get("keep")
    service.need_room()
    reply = service.step(commands.CellSet(kind, name, frame[2], options.get("version"), keep, user))
    if isinstance(reply, commands.Mismatch):
        return answers.encode(reply, connection.resp, connection.user)
    service.batches.cell_writes[user] += len(frame[2])
    service.expect_death(None if keep is None else service.now + keep)
    return connection.resp.encode(["cell", reply.version])


def delete(connection: Connection, frame: Frame) -> bytes:
    """HF.CELLDEL name [VERSION n] [KIND kind]."""
    grammar.expect(frame, 2, 6)
    service = connection.service
    name = writable(connection, grammar.name(frame[1]))
    options = grammar.options(frame, 2, DELETE, service.limits)
    kind = options.get("kind", grammar.CELL)
    reply = service.step(commands.CellSet(kind, name, None, options.get("version")))
    if isinstance(reply, commands.Mismatch):
        return answers.encode(reply, connection.resp, connection.user)
    return connection.resp.encode(["cell", 0])


COMMANDS = {
    b"HF.CELLGET": get,
    b"HF.CELLSET": put,
    b"HF.CELLDEL": delete,
}
