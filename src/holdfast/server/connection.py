"""One client's connection: requests in, replies and pushes out, in order and bounded."""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from holdfast.server import resp
from holdfast.server.addresses import Address
from holdfast.server.burdens import heaviest_first
from holdfast.server.frames import Frame, FrameReader
from holdfast.server.gathering import AT_ONCE, MOST_COST, PLAIN, Pace
from holdfast.server.resp import RESP2, RESP3
from holdfast.server.users import NOBODY
from holdfast.server.wire_error import WireError

if TYPE_CHECKING:
    from holdfast.server.dispatch import Carry, Commands
    from holdfast.server.service import Service

log = logging.getLogger("holdfast.server")

FRAMES_A_TURN, FRAMES_A_SHORT_TURN = 256, 32
"""How many requests of one connection are carried out before others have their turn.

A commit begins after a turn of the loop. Where commits are quick, turns are short: of many requests that came together
the first are answered while the others are carried out, and the client works on those answers meanwhile.
"""

LARGE = 1 << 16
"""Bytes of something that counts whole while any of it is not taken: the transport keeps all of it until then."""

LONGEST_PLAIN = 64
"""Bytes of a reply to a plain request, at most."""

_ids = itertools.count(1)


class Connection(asyncio.Protocol):
    """Speaks RESP with one client. It never waits for it: what it does not read is kept up to a limit, then it goes."""

    def __init__(self, service: Service, commands: Commands) -> None:
        self.service, self.commands = service, commands
        self.id = next(_ids)
        self.name = ""
        self.peer = ""
        self.resp = self.proposed = RESP2
        """The version that it speaks; the one that a login under way asked for."""
        self.user = NOBODY
        self.allowed: Mapping[bytes, Carry] = {}
        """The commands that it may use now."""
        self.session = ""
        self.is_bereft = False
        """Whether the session that it spoke for has ended, and it speaks for no other since."""
        self.side = self.quiet = False
        self.waits_for: str | tuple[str, str] | None = None
        """The claim or watch that the next reply depends on."""
        self.chosen: str | None = None
        """The id of that claim, if the server chose it."""
        self.closing = False
        self.held = False
        """Whether later requests have to wait for a reply that is not there yet."""
        self.wrong_passwords = 0
        self.spent = False
        """Whether the last request took so long that others have their turn before the next."""
        self.steps = 0
        """How many steps of HF.MANY were carried out in this turn."""
        self.began = self.heard = self.unknown_since = service.loop.time()
        """When it came, when it last said something, and since when it has not said who it is, if it has to."""
        self.closed_at: float | None = None
        """When it was told to close."""
        self._unfinished = 0
        self._reader = FrameReader(service.limits.frame_before_login)
        self._transport: asyncio.Transport | None = None
        self._backlog: deque[Frame] = deque()
        self._working = False
        self._reading = True
        self._choked = False
        self._owed = self.unsaid = 0
        """Requests whose replies are not let out yet, and bytes of all that is not."""
        self._largest = 0
        """The largest of what is large, since everything was taken."""

    # From the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        service = self.service
        # Not before: while it shook hands, users may have been configured.
        self.user = service.users.at_first
        self.allowed = self.commands.before_login if service.users.required else self.commands.open(service)
        self.bound_frames()
        wire = transport.get_extra_info("socket")
        if wire is not None:
            # A client that vanished without a word is noticed by the kernel.
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        peer = transport.get_extra_info("peername")
        self.peer = str(Address(*peer[:2])) if peer else "?"  # it has gone already
        service.tally.connections += 1
        limit = service.limits.connections
        if len(service.connections) >= limit and not self._takes_a_place():
            service.complaints.add("connection refused", peer=self.peer, limit=limit)
            self._transport.write(resp.error("HFLIMIT", f"the limit connections = {limit} is reached"))
            self._transport.close()
            self.closing = True
            return
        service.connections.add(self)
        if service.stopping:
            # It was taken in just before, and nobody could say goodbye to it.
            self.allowed = {}
        self.commands.greet(self, transport.get_extra_info("ssl_object"))

    def _takes_a_place(self) -> bool:
        """Have the place of whoever has taken longest to say who it is; False if everybody has said so."""
        unknown = [one for one in self.service.connections if one.allowed is self.commands.before_login]
        oldest = min(unknown, key=lambda one: one.unknown_since, default=None)
        if oldest is None:
            return False
        limit = self.service.limits.connections
        oldest.turn_away(WireError("HFLIMIT", f"the limit connections = {limit} is reached: log in sooner"))
        self.service.connections.discard(oldest)
        return True

    def data_received(self, data: bytes) -> None:
        service = self.service
        self.heard = service.loop.time()
        # Most requests come by themselves, when all before them are answered: there is nothing to share a turn with.
        if not self._owed and self._reading and not self.closing:
            frame = self._reader.single(data)
            if frame is not None:
                if frame[0] in PLAIN:
                    self._owed = 1
                    service.gathering.add(self, frame)
                elif service.held_back.concerns(self, frame):
                    self._backlog.append(frame)
                    self._steer()
                else:
                    self._owed, self.spent = 1, False
                    service.gathering.carry_out()
                    service.begin_turn()
                    self.carry_out(frame)
                    service.is_spent = service.is_spent or self.spent
                return
        service.gathering.carry_out()
        self._receive(data)

    def _receive(self, data: bytes) -> None:
        """Take requests, or pieces of them."""
        reader, service = self._reader, self.service
        if self.closing or reader.error is not None:
            return
        if service.pipelines.have_read_enough:
            reader.keep(data)
            frames = []
        else:
            frames = reader.feed(data)
            service.pipelines.took_apart(len(frames))
        if self._unfinished != reader.size:
            self._count_unfinished(reader.size)
            if self.closing:
                return
        if self._backlog or self.held or reader.more or len(frames) > self._at_once() or self._busy():
            self._backlog += frames
            if not self._working:
                self.work()
        else:
            service.begin_turn()
            done = self._carry_out_some(frames)
            if done < len(frames):
                self._backlog += frames[done:]
                self._steer()
        if reader.error is not None and not self._backlog and not self.held:
            self._refuse_rest()

    def _count_unfinished(self, size: int) -> None:
        """Keep what all clients together have begun to send and not finished below its limit."""
        service, grows = self.service, size > self._unfinished
        service.unfinished += size - self._unfinished
        self._unfinished = size
        if grows and service.unfinished > service.limits.total_input:
            worst, _ = next(heaviest_first(service.connections, lambda one: one._unfinished))
            worst.refuse_input()

    def refuse_input(self) -> None:
        """What it has begun to send is too much, with what others have: forget it, and close."""
        limit = self.service.limits.total_input
        self.service.complaints.add("too many large requests", peer=self.peer, user=self.user.name)
        self._reader = FrameReader(self._reader.most)
        self._count_unfinished(0)
        self.say(resp.error("HFLIMIT", f"the limit total_input = {limit} is reached: too many large requests"))
        self.close_after_output()

    def pause_writing(self) -> None:
        self._choked = True
        self._steer()

    def resume_writing(self) -> None:
        self._choked = False
        self._steer()

    def connection_lost(self, error: Exception | None) -> None:
        self.closing = True
        self._backlog.clear()
        self._count_unfinished(0)
        self.service.waits.ended(self)
        self.service.attachments.detach(self)
        self.service.connections.discard(self)
        if self.service.alone is not None and not self.service.connections:
            self.service.alone.set()

    # Requests

    def work(self) -> None:
        """Carry out some of what has gathered; the rest after others had their turn."""
        self._working = False
        if self.closing:
            return
        self.service.gathering.carry_out()
        self.service.begin_turn()
        backlog = self._backlog
        frames = [backlog.popleft() for _ in range(min(self._at_once(), len(backlog)))]
        done = self._carry_out_some(frames)
        if not self.closing:
            backlog.extendleft(reversed(frames[done:]))
        if self._reader.more and not backlog and not self.closing and not self._reads_later():
            further = self._reader.further()
            self.service.pipelines.took_apart(len(further))
            backlog += further
            self._count_unfinished(self._reader.size)
        if self._reader.error is not None and not backlog and not self.held:
            self._refuse_rest()
        self._steer()

    def _carry_out_some(self, frames: Sequence[Frame]) -> int:
        """Carry out requests, as many as may be before something else is; how many that were."""
        service = self.service
        self.spent, self.steps = False, 0
        done, pace, most = 0, Pace(), service.cost + MOST_COST
        while done < len(frames) and not (self.held or self.closing or self.spent or self._busy()):
            if service.held_back.concerns(self, frames[done]) or (done and service.is_exhausted):
                break
            if pace.tries(done):
                plain = self._carry_out_plain(frames[done : done + AT_ONCE])
                done += plain
                pace.went(done, plain)
                if plain:
                    continue
            self._owed += 1
            self.carry_out(frames[done])
            done += 1
            self.spent = self.spent or service.cost >= most
        service.is_spent = service.is_spent or self.spent
        return done

    def _carry_out_plain(self, frames: Sequence[Frame]) -> int:
        """Carry out the first requests together if they are plain; how many that were."""
        service = self.service
        if frames[0][0] not in PLAIN or service.table.watches:
            return 0
        limits = service.limits
        room = min(limits.pipeline - self._owed, (limits.output // 4 - self.unsaid) // LONGEST_PLAIN)
        replies = service.gathering.carry_out_first([(self, frame) for frame in frames[:room]])
        if replies:
            self._owed += len(replies)
            self.say(b"".join(replies), len(replies))
        return len(replies)

    def carry_out(self, frame: Frame) -> None:
        """Run one request. Whatever it is, it gets one reply, now or later."""
        self.service.charge(1)
        reply = self.commands.carry_out(self, frame)
        if reply is not None:
            self.say(reply, 1)

    def put_off(self, frame: Frame) -> None:
        """Carry it out in another turn."""
        self._owed -= 1
        self._backlog.appendleft(frame)
        self._steer()

    def _at_once(self) -> int:
        return FRAMES_A_SHORT_TURN if self.service.batches.quick else FRAMES_A_TURN

    def _busy(self) -> bool:
        """Whether so much is to be said already that later requests wait.

        What is not let out yet stays well below the limit for what a client does not read: a client that asks for
        much at once is slowed down, not closed.
        """
        limits = self.service.limits
        return self._choked or self._owed >= limits.pipeline or self.unsaid >= limits.output // 4

    def hold(self) -> None:
        """Later requests wait until `answer` is called."""
        self.held = True
        self._steer()

    def answer(self, reply: bytes) -> None:
        """The reply that was held back."""
        self.held, self.waits_for = False, None
        self.say(reply, 1)
        self.service.batches.gather()
        self._soon()

    def _soon(self) -> None:
        service = self.service
        if self._working:
            return
        self._working = True
        over = service.held_back.is_over_for(self._backlog[0]) if self._backlog else self._reads_later()
        if over:
            service.held_back.add(self)
        else:
            # After the next step of a commit: unless others come, what was carried out goes to the disk before more is.
            service.loop.call_soon(service.loop.call_soon, self.work)

    def _steer(self) -> None:
        """Read on, or leave it to the kernel to slow the client down."""
        busy, more = self._busy(), bool(self._backlog) or self._reader.more
        read = not (more or self.held or busy)
        if read != self._reading and self._transport is not None and not self._transport.is_closing():
            self._reading = read
            if read:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()
        if more and not self.held and not busy and not self.closing:
            self._soon()

    def _reads_later(self) -> bool:
        """Whether what has arrived is taken apart in another turn."""
        service = self.service
        return service.pipelines.have_read_enough and not service.held_back.is_on_turn(self)

    def _refuse_rest(self) -> None:
        """What came last is no request; nothing after it can be understood."""
        if self.closing:
            return
        self.service.complaints.add("no request", peer=self.peer, problem=str(self._reader.error))
        self.say(resp.error("ERR", str(self._reader.error)))
        self.close_after_output()

    # Output

    def say(self, data: bytes, replies: int = 0) -> None:
        """Say something with this batch; whether it is a reply counts if the batch is refused."""
        size, batches = len(data), self.service.batches
        self.unsaid += size
        batches.size += size
        batches.output.append((self, data, replies))

    def push(self, *parts: Any) -> None:
        """Tell the client something that it did not ask for now, if it can take that."""
        if self.resp is RESP3 and not self.quiet and not self.closing:
            self.say(RESP3.push(*parts))
            self.service.batches.gather()

    def let_out(self, data: bytes, replies: int, refusal: bytes | None = None) -> None:
        """Let out what was said: what it tells of is kept. If it is not, a refusal takes the place of a reply."""
        self._owed -= replies
        self.unsaid -= len(data)
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._largest and not transport.get_write_buffer_size():
            self._largest = 0
        transport.write(data if refusal is None else refusal * replies)
        if len(data) > LARGE and refusal is None:
            self._largest = max(self._largest, len(data))
        if self._reading and not self.closing:
            return
        if self.closing and not self.unsaid:
            transport.close()
        elif self._choked:
            if transport.get_write_buffer_size() > self.service.limits.output:
                log.warning("connection does not read its replies", extra={"peer": self.peer, "user": self.user.name})
                transport.abort()
        elif not self._reading:
            self._steer()

    def close_after_output(self) -> None:
        """Take no more requests; close when what is still to be said was said."""
        if self.closing:
            return
        self.closing = True
        self.closed_at = self.service.loop.time()
        self._backlog.clear()
        if not self.unsaid and self._transport is not None:
            self._transport.close()
        self.service.batches.gather()

    def unread(self) -> int:
        """Bytes that are kept because the client has not taken them."""
        transport = self._transport
        size = 0 if transport is None or transport.is_closing() else transport.get_write_buffer_size()
        if not size:
            self._largest = 0
        return max(size, self._largest)

    def abort(self) -> None:
        """End it at once."""
        self.closing = True
        if self._transport is not None:
            self._transport.abort()

    def turn_away(self, problem: WireError) -> None:
        """Say why it may not stay, and close."""
        self.say(self.error(problem))
        self.close_after_output()

    def logged_in(self) -> None:
        """From now on it may use every command that this server carries out."""
        self.allowed = self.commands.open(self.service)
        self.bound_frames()

    def bound_frames(self) -> None:
        """Let requests be as large as the limits allow to whom it is now."""
        limits = self.service.limits
        unknown = self.allowed is self.commands.before_login
        self._reader.most = limits.frame_before_login if unknown else limits.frame

    def start_over(self) -> None:
        """Be as after connecting: whoever its certificate does not name has to log in again, where there are users."""
        service = self.service
        service.attachments.detach(self)
        self.resp, self.name, self.quiet = RESP2, "", False
        if not service.users.required or self.allowed is self.commands.before_login:
            # Who has not logged in yet gets no more time for it.
            return
        self.user, self.allowed = service.users.at_first, self.commands.before_login
        self.unknown_since = service.loop.time()
        self.bound_frames()
        if self._transport is not None:
            self.commands.greet(self, self._transport.get_extra_info("ssl_object"))

    def allow(self) -> None:
        """The server leads now, or does so no more."""
        if self.allowed is not self.commands.before_login:
            self.allowed = self.commands.open(self.service)

    def error(self, problem: WireError) -> bytes:
        """An error reply, counted."""
        self.service.tally.errors[self.user.name, problem.word] += 1
        return resp.error(problem.word, problem.text)
