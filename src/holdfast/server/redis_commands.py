"""Commands of Redis that its clients send by themselves, or that people expect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.server.frames import Frame
from holdfast.server.grammar import expect
from holdfast.server.resp import OK, status
from holdfast.server.wire_error import WireError

if TYPE_CHECKING:
    from holdfast.server.connection import Connection
    from holdfast.server.service import Service

PONG = status("PONG")
MOST_NAME = 100
EVERY_SECTION = frozenset({b"default", b"all", b"everything"})
"""What INFO is asked for by those who want all of it."""


def ping(connection: Connection, frame: Frame) -> bytes:
    """PING [text]."""
    if len(frame) == 1:
        return PONG
    expect(frame, 1, 2)
    return connection.resp.encode(frame[1])


def echo(connection: Connection, frame: Frame) -> bytes:
    """ECHO text."""
    expect(frame, 2, 2)
    return connection.resp.encode(frame[1])


def select(connection: Connection, frame: Frame) -> bytes:
    """SELECT 0: there is one database."""
    expect(frame, 2, 2)
    if frame[1] != b"0":
        raise WireError("ERR", "DB index is out of range")
    return OK


def quit_(connection: Connection, frame: Frame) -> bytes:
    """QUIT."""
    connection.service.loop.call_soon(connection.close_after_output)
    # What comes after it in the same packet is not carried out any more.
    connection.spent = True
    return OK


def reset(connection: Connection, frame: Frame) -> bytes:
    """RESET: as after connecting. Logged out, too, where there are users."""
    connection.start_over()
    return status("RESET")


def config(connection: Connection, frame: Frame) -> bytes:
    """CONFIG GET name: there is nothing to get, but tools ask."""
    if len(frame) < 3 or frame[1].upper() != b"GET":
        raise WireError("ERR", "the configuration is a file, read again on SIGHUP")
    return connection.resp.encode(dict.fromkeys(frame[2:], ""))


UNCOUNTED = "db=0 sub=0 psub=0 multi=-1 qbuf=0 qbuf-free=0 argv-mem=0 obl=0 oll=0 omem=0 tot-mem=0"
"""What Redis counts and a lock server does not: redis-py 5 and 6 fail where one of them is missing."""


def describe(connection: Connection) -> str:
    """A connection in the form of CLIENT LIST."""
    age = int(connection.service.loop.time() - connection.began)
    idle = int(connection.service.loop.time() - connection.heard)
    return (
        f"id={connection.id} addr={connection.peer} name={connection.name} age={age} idle={idle} "
        f"user={connection.user.name or 'default'} resp={connection.resp.version} "
        f"session={connection.session} side={int(connection.side)} {UNCOUNTED}"
    )


def client_name(raw: bytes) -> str:
    """A name that a connection gives itself, cut to what is shown."""
    name = raw.decode()[:MOST_NAME]
    # As in Redis. What else there is may end a line, or a word, for whoever reads CLIENT LIST.
    if not all("!" <= letter <= "~" for letter in name):
        raise WireError("ERR", "Client names cannot contain spaces, newlines or special characters.")
    return name


def client(connection: Connection, frame: Frame) -> bytes:
    """CLIENT ID | GETNAME | SETNAME name | SETINFO key value | INFO | LIST | NO-EVICT | NO-TOUCH."""
    expect(frame, 2, 8)
    what = frame[1].upper()
    if what == b"ID":
        return connection.resp.encode(connection.id)
    if what == b"GETNAME":
        return connection.resp.encode(connection.name or None)
    if what == b"SETNAME":
        expect(frame, 3, 3)
        connection.name = client_name(frame[2])
        return OK
    if what in (b"SETINFO", b"NO-EVICT", b"NO-TOUCH"):
        return OK
    if what == b"INFO":
        return connection.resp.encode(describe(connection) + "\n")
    if what == b"LIST":
        connection.spent = True
        # Others are shown to those who may break everything: operators.
        shown = connection.service.connections if "" in connection.user.breaks else [connection]
        return connection.resp.encode("".join(describe(one) + "\n" for one in shown))
    raise WireError("ERR", f"Unknown subcommand '{frame[1][:40].decode(errors='replace')}' of CLIENT")


def about(name: bytes) -> list[Any]:
    """A command in the form of Redis 7.

    Name, arity (at least the command itself), flags, first and last key, step: no keys, so no slots. Then
    categories, tips, key specifications and subcommands, which clients look for.
    """
    return [name.lower(), -1, ["fast"], 0, 0, 0, [], [], [], []]


def command(connection: Connection, frame: Frame) -> bytes:
    """COMMAND [COUNT | LIST | INFO [name ...] | DOCS [name ...]]."""
    names = sorted(connection.commands.all)
    what = frame[1].upper() if len(frame) > 1 else b"INFO"
    asked = [name.upper() for name in frame[2:]] or names
    if what == b"COUNT":
        return connection.resp.encode(len(names))
    # Others have their turn: all that there is takes as long as dozens of other requests.
    connection.spent = True
    if what == b"LIST":
        return connection.resp.encode([name.lower() for name in names])
    if what == b"INFO":
        return connection.resp.encode([about(name) if name in connection.commands.all else None for name in asked])
    if what == b"DOCS":
        docs = {}
        for name in asked:
            carry = connection.commands.all.get(name)
            if carry is not None:
                lines = (carry.__doc__ or "").strip().splitlines()
                docs[name.lower()] = {"summary": lines[0] if lines else "", "group": "holdfast"}
        return connection.resp.encode(docs)
    raise WireError("ERR", "Unknown subcommand of COMMAND")


def info(connection: Connection, frame: Frame) -> bytes:
    """INFO [section ...]."""
    # Others have their turn: all connections and all who wait are counted.
    connection.spent = True
    asked = {word.lower() for word in frame[1:]}
    everything = not asked or not asked.isdisjoint(EVERY_SECTION)
    lines: list[str] = []
    for title, figures in sections(connection.service).items():
        if everything or title.lower().encode() in asked:
            lines += [f"# {title}", *(f"{key}:{value}" for key, value in figures.items())]
    return connection.resp.encode("".join(f"{line}\r\n" for line in lines))


def sections(service: Service) -> dict[str, dict[str, Any]]:
    """What INFO shows, under the titles that Redis has for it."""
    table, tally, about = service.table, service.tally, service.about
    figures = service.store.figures()
    return {
        "Server": {
            "holdfast_version": about.version,
            # Clients wait for `loading:0`, and some read a version of Redis.
            "redis_version": "7.0.0",
            "redis_mode": "standalone",
            "instance": about.instance,
            "uptime_in_seconds": int(service.uptime()),
            "loading": 0,
        },
        "Clients": {
            "connected_clients": len(service.connections),
            "blocked_clients": sum(one.held for one in service.connections),
        },
        "Locks": {
            "sessions": len(table.sessions),
            "claims": len(table.rows),
            "waiting": len(table.waiting),
            "cells": len(table.cells),
        },
        "Stats": {
            "total_commands_processed": tally.commands,
            "total_connections_received": tally.connections,
            "grants": tally.grants,
            "expiries": tally.expiries,
            "deadlocks": tally.deadlocks,
        },
        "Persistence": {
            "store": about.store,
            "durable": int(about.durable),
            "batches": figures.batches,
            "store_bytes": figures.file_bytes,
        },
        "Replication": {"role": "master"},
    }


COMMANDS = {
    b"PING": ping,
    b"ECHO": echo,
    b"SELECT": select,
    b"QUIT": quit_,
    b"RESET": reset,
    b"CONFIG": config,
    b"CLIENT": client,
    b"COMMAND": command,
    b"INFO": info,
}
