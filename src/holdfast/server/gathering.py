"""Plain requests of one turn of the loop, whoever sent them, carried out together.

Nearly all requests are: HF.ACQUIRE of a lock that is free, and HF.RELEASE of one that nobody waits for. What is done
is what `claim_commands` does one by one, in the same order, by test; whatever is not plain is left to that.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from holdfast.core.table.changes import DropRow, PutRow
from holdfast.core.table.shortcuts import Plain
from holdfast.model import Claim
from holdfast.server import grammar
from holdfast.server.frames import Frame
from holdfast.server.resp import OK

if TYPE_CHECKING:
    from holdfast.server.connection import Connection
    from holdfast.server.service import Service

log = logging.getLogger("holdfast.server")

ACQUIRE, RELEASE = b"HF.ACQUIRE", b"HF.RELEASE"
PLAIN = frozenset({ACQUIRE, RELEASE})
"""What may be carried out together with others."""

Request = tuple["Connection", Frame]


AT_ONCE = 256
"""How many are looked at together, at most."""
MOST_APART = 64
"""How many are carried out one by one, at most, after some that were not plain: where many want one lock, few are."""

MOST_COST = 1_000
"""What the requests of one connection may cost the table before others have their turn: some milliseconds of work.

Most cost two or three; one that closes a ring of many owners, or wants a subtree with much under it, costs thousands.
"""


class Gathering:
    """Keeps requests until the turn is over, or until something comes that has to see what they did."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._requests: list[Request] = []

    def add(self, connection: Connection, frame: Frame) -> None:
        """Carry it out when the turn is over. Nothing else of this connection may be carried out before."""
        self._requests.append((connection, frame))
        self._service.batches.gather()

    def forget(self) -> None:
        """Carry out nothing of what was gathered: its connections are gone."""
        self._requests = []

    def carry_out(self) -> None:
        """Carry out what was gathered, in order."""
        if not self._requests:
            return
        requests, self._requests = self._requests, []
        service, done, pace = self._service, 0, Pace()
        service.begin_turn()
        while done < len(requests):
            if pace.tries(done) and not service.batches.is_behind:
                some = requests[done : done + AT_ONCE]
                replies = self.carry_out_first(some)
                batches = service.batches
                batches.size += sum(map(len, replies))
                output = batches.output
                for (connection, _), reply in zip(some, replies, strict=False):
                    connection.unsaid += len(reply)
                    output.append((connection, reply, 1))
                done += len(replies)
                pace.went(done, len(replies))
                if len(replies) == len(some):
                    continue
            connection, frame = requests[done]
            if service.held_back.concerns(connection, frame):
                connection.put_off(frame)
            else:
                connection.carry_out(frame)
            done += 1

    def carry_out_first(self, requests: Sequence[Request]) -> list[bytes]:
        """Carry out the first of these requests, as many as are plain; their replies."""
        done = self.take(self._steps(requests))
        return [
            connection.resp.granted % change.row.order if type(change) is PutRow else OK
            for (connection, _), change in zip(requests, done, strict=False)
        ]

    def take(self, steps: Iterable[Plain]) -> Sequence[PutRow | DropRow]:
        """Take the first of these steps, as many as are plain; what each of them did."""
        service = self._service
        done: list[PutRow | DropRow] = []
        try:
            service.step_plainly(steps, done)
        except Exception:
            # A mistake in this server. What was done is answered; the next one is told by itself what is wrong.
            log.exception("plain requests failed")
        now = service.now
        service.tally.plain(len(done), [now - change.row.since for change in done if type(change) is DropRow])
        return done

    def _steps(self, requests: Iterable[Request]) -> Iterator[Plain]:
        """What plain requests ask for, until one of them is something else."""
        service = self._service
        known, longest = service.terms.known, service.limits.text
        for connection, frame in requests:
            session = connection.session
            if not session or connection.side or connection.allowed is not connection.commands.all:
                return
            size = len(frame)
            if size == 2 and frame[0] == RELEASE:
                yield session, frame[1].decode(errors="replace"), None
                continue
            if size < 3 or frame[0] != ACQUIRE or service.quotas.claims_left(session) <= 0:
                return
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


class Pace:
    """Whether it is worth while to try some together: rarely, after some of which the first was not plain."""

    __slots__ = ("_apart", "_from")

    def __init__(self) -> None:
        self._from, self._apart = 0, 1

    def tries(self, at: int) -> bool:
        return at >= self._from

    def went(self, at: int, done: int) -> None:
        """So many were carried out together, up to the one at `at`."""
        self._apart = 1 if done else min(2 * self._apart, MOST_APART)
        self._from = at + self._apart
