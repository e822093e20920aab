"""What is kept in etcd, and under which keys.

    /holdfast/1/NAMESPACE/base                        where tokens start, and the layout's version
    /holdfast/1/NAMESPACE/s/SESSION/                  a session: who it is
    /holdfast/1/NAMESPACE/s/SESSION/n/CLAIM           a note to it: this claim is not yours any more, and why
    /holdfast/1/NAMESPACE/t/SESSION/CLAIM             a tombstone: this claim was withdrawn before it arrived
    /holdfast/1/NAMESPACE/h/SESSION/CLAIM             a ticket: whoever knows its secret may adopt this grant
    /holdfast/1/NAMESPACE/l/KIND/NAME//x/SESSION/SEAT a claim to hold alone, or (s) with other readers
    /holdfast/1/NAMESPACE/l/KIND/NAME//q/LIMIT/SESSION/SEAT  a claim that waits for a permit
    /holdfast/1/NAMESPACE/l/KIND/NAME//p/LIMIT/SLOT   a permit in use
    /holdfast/1/NAMESPACE/b/KIND/NAME//CLAIM          this claim was told to go
    /holdfast/1/NAMESPACE/c/KIND/NAME                 a cell

Everything of a session hangs on its lease, whose number is the session's id. No name has an empty
segment, so `//` ends it. The order of a line is that of the keys' creation. A seat is a number that
no other claim of the session has in that line; a later one may have it again, so whatever ends a claim
compares a revision of its key.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal
from urllib.parse import quote

from holdfast.core.table.rows import Session
from holdfast.model import Claim, Mode, Party

LAYOUT = 1
State = Literal["queued", "granted", "deadlock"]


def end_of(prefix: bytes) -> bytes:
    """The end of the range of all keys that start so."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


class Keys:
    """The keys of one namespace."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.root = f"/holdfast/{LAYOUT}/{quote(namespace, safe='')}/"
        self.base = f"{self.root}base".encode()
        self.sessions = f"{self.root}s/".encode()
        self.lines = f"{self.root}l/".encode()
        self.broken = f"{self.root}b/".encode()
        self._cut = len(namespace) + 1

    def short(self, kind: str) -> str:
        """A kind without its namespace."""
        return kind[self._cut :]

    def session(self, session: str) -> bytes:
        return f"{self.root}s/{session}/".encode()

    def note(self, claim_id: str) -> bytes:
        return f"{self.root}s/{session_of(claim_id)}/n/{claim_id}".encode()

    def tombstone(self, claim_id: str) -> bytes:
        return f"{self.root}t/{session_of(claim_id)}/{claim_id}".encode()

    def ticket(self, claim_id: str) -> bytes:
        return f"{self.root}h/{session_of(claim_id)}/{claim_id}".encode()

    def line(self, kind: str, name: str) -> str:
        """What all keys of one lock start with."""
        return f"{self.root}l/{kind[self._cut :]}/{name}//"

    def told(self, kind: str, name: str) -> bytes:
        """What the marks of claims on this lock start with that were told to go."""
        return f"{self.root}b/{kind[self._cut :]}/{name}//".encode()

    def cell(self, kind: str, name: str) -> bytes:
        return f"{self.root}c/{kind[self._cut :]}/{name}".encode()

    def parse(self, key: bytes) -> tuple[str, str, str]:
        """The kind, the name, and what follows, of a key in a line."""
        kind, _, rest = key[len(self.lines) :].decode().partition("/")
        name, _, place = rest.partition("//")
        return f"{self.namespace}.{kind}", name, place


def session_of(claim_id: str) -> str:
    """The session that a claim id was made under."""
    return claim_id.partition("-")[0]


def lease_of(session: str) -> int:
    """A session's lease."""
    return int(session, 16)


@lru_cache(4096)
def _quoted(text: str) -> str:
    return json.dumps(text)


@dataclass(frozen=True, slots=True)
class Record:
    """A claim as it is kept."""

    claim: Claim
    state: State
    since: float
    """Seconds since the epoch, on the clock of whoever wrote it: etcd has none to ask."""
    app: str = ""
    host: str = ""
    pid: int = 0
    ttl: float = 0.0
    arrived: int = 0
    """The revision at which it came into the line, if it is not that of its key."""

    def pack(self) -> bytes:
        """The same as it is written: JSON, put together by hand because it is written with every step."""
        claim = self.claim
        text = (
            f'{{"id":"{claim.id}","owner":{_quoted(claim.owner)},"state":"{self.state}","since":{self.since:.3f},'
            f'"app":{_quoted(self.app)},"host":{_quoted(self.host)},"pid":{self.pid},"ttl":{self.ttl},'
            f'"thread":{_quoted(claim.thread)}'
        )
        if claim.note:
            text += f',"note":{json.dumps(claim.note)}'
        if claim.limit:
            text += f',"limit":{claim.limit}'
        if claim.max_hold is not None:
            text += f',"max_hold":{float(claim.max_hold)}'
        if self.arrived:
            text += f',"arrived":{self.arrived}'
        return (text + "}").encode()

    def granted(self) -> Record:
        """The same once it is granted."""
        return Record(self.claim, "granted", time.time(), self.app, self.host, self.pid, self.ttl, self.arrived)


def new_record(claim: Claim, session: Session, state: State) -> Record:
    """A claim of this client, as it is first written."""
    return Record(claim, state, time.time(), session.app, session.host, session.pid, session.ttl)


@dataclass(frozen=True, slots=True)
class Row:
    """A claim that was read, with where and when it was written."""

    key: bytes
    record: Record
    created: int
    modified: int
    slot: int | None = None

    @property
    def held(self) -> bool:
        return self.record.state == "granted"

    @property
    def order(self) -> int:
        return self.record.arrived or self.created

    def party(self, base: int) -> Party:
        """The claim as people see it."""
        record, claim = self.record, self.record.claim
        return Party(
            claim=claim.id,
            owner=claim.owner,
            app=record.app,
            host=record.host,
            pid=record.pid,
            thread=claim.thread,
            note=claim.note,
            since=record.since,
            age=max(0.0, time.time() - record.since),
            mode=claim.mode,
            token=base + self.modified if self.held else None,
            slot=self.slot,
            name=claim.name,
        )


def read_row(keys: Keys, kv: Any) -> Row:
    """A claim from what etcd returned."""
    kind, name, place = keys.parse(kv.key)
    where, _, rest = place.partition("/")
    kept = json.loads(kv.value)
    mode: Mode = "shared" if where == "s" else "exclusive"
    claim = Claim(
        kept["id"], session_of(kept["id"]), kept["owner"], kind, name, mode,
        limit=kept.get("limit", 0), max_hold=kept.get("max_hold"), note=kept.get("note", ""), thread=kept["thread"],
    )  # fmt: skip
    record = Record(
        claim, kept["state"], kept["since"], kept["app"], kept["host"], kept["pid"], kept["ttl"], kept.get("arrived", 0)
    )
    slot = int(rest.partition("/")[2]) if where == "p" else None
    return Row(kv.key, record, kv.create_revision, kv.mod_revision, slot)
