"""Plain requests of one turn of the loop, whoever sent them, carried out together.

Nearly all requests are: HF.ACQUIRE of a lock that is free, and HF.RELEASE of one that nobody waits for. What is done
is what `claim_commands` does one by one, in the same order, by test; whatever is not plain is left to that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from holdfast.core.table.changes import PutRow
from holdfast.core.table.shortcuts import Plain
from holdfast.model import Claim
from holdfast.server import grammar
from holdfast.server.frames import Frame
from holdfast.server.resp import OK

if TYPE_CHECKING:
    from holdfast.server.connection import Connection
    from holdfast.server.service import Service

ACQUIRE, RELEASE = b"HF.ACQUIRE", b"HF.RELEASE"
PLAIN = frozenset({ACQUIRE, RELEASE})
"""What may be carried out together with others."""

Request = tuple["Connection", Frame]


class Together:
    """Gathers requests until the turn is over, or until something comes that has to see what they did."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._requests: list[Request] = []

    def add(self, connection: Connection, frame: Frame) -> None:
        """Carry it out when the turn is over. Nothing else of this connection may be carried out before."""
        self._requests.append((connection, frame))
        self._service.batches.gather()

    def carry_out(self) -> None:
        """Carry out what was gathered, in order."""
        if not self._requests:
            return
        requests, self._requests = self._requests, []
        self._service.begin_turn()
        output = self._service.batches.output
        while requests:
            replies = self.begin(requests)
            for (connection, _), reply in zip(requests, replies, strict=False):
                connection.unsaid += len(reply)
                output.append((connection, reply, 1))
            rest = requests[len(replies) :]
            if rest:
                connection, frame = rest[0]
                connection.carry_out(frame)
            requests = rest[1:]

    def begin(self, requests: Sequence[Request]) -> list[bytes]:
        """Carry out the first of these requests, as many as are plain; their replies."""
        service = self._service
        done = service.step_plainly(self._steps(requests))
        add, now = service.tally.hold_seconds.add, service.now
        replies = []
        for (connection, _), change in zip(requests, done, strict=False):
            row = change.row
            if type(change) is PutRow:
                replies.append(connection.resp.granted % row.order)
            else:
                replies.append(OK)
                add(now - row.since)
        service.tally.plain(len(replies), replies.count(OK))
        return replies

    def _steps(self, requests: Iterable[Request]) -> Iterator[Plain]:
        """What plain requests ask for, until one of them is something else."""
        service = self._service
        limits, table, known = service.limits, service.table, service.terms.known
        has_room = service.store.has_room()
        room = min(limits.claims, limits.claims_per_session) - len(table.rows) - table.stones if has_room else 0
        longest = limits.text
        for connection, frame in requests:
            session = connection.session
            if not session or connection.side or connection.allowed is not connection.commands.all:
                return
            size = len(frame)
            if size == 2 and frame[0] == RELEASE:
                yield session, frame[1].decode(errors="replace"), None
                continue
            if size < 3 or frame[0] != ACQUIRE or room <= 0:
                return
            room -= 1
            raw, name = frame[1], grammar.plain_name(frame[2])
            id_ = raw.decode(errors="replace")
            head, _, tail = raw.rpartition(b"-")
            own = len(head) == len(session) and id_.startswith(session)
            if not own or not tail.isalnum() or len(tail) > grammar.LONGEST_SUFFIX:
                return
            owner, thread, start = session, "", 3
            if size > 4 and frame[3] == b"OWNER":
                told, start = frame[4], 5
                if size > 6 and frame[5] == b"THREAD":
                    raw, start = frame[6], 7
                    if len(raw) > longest or not raw.isascii():
                        return
                    thread = raw.decode()
                owner = told.decode(errors="replace")
                if len(told) > longest or not told.isascii() or not owner.startswith(f"{session}/"):
                    return
            terms = known.get(tuple(frame[start:])) or service.terms.try_acquire(frame, start)
            if name is None or terms is None or not terms.plain or not name.startswith(connection.user.holds):
                return
            yield session, id_, Claim(
                id_, session, owner, terms.kind, name, terms.mode, False, 0, terms.wait != 0, False, None, terms.note,
                thread,
            )  # fmt: skip
