"""The wire for tasks: one connection, on which the commands of concurrent tasks go out in one write."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

from hiredis import ProtocolError, Reader, ReplyError

from holdfast.engines.resp.blocking import IN_TIME, MOST_REDIRECTIONS, MOST_REPEATS, MOVING
from holdfast.engines.resp.joint import APART, Joint, ScriptJoint
from holdfast.engines.resp.wire import (
    WRONG_SERVER,
    Address,
    AnyRequest,
    Login,
    Lost,
    Request,
    pack,
    redirection,
    refused,
)
from holdfast.errors import EngineFailure
from holdfast.runtime import clock
from holdfast.runtime.asyncio import abort, connect, go_on, in_own_thread, within

if TYPE_CHECKING:
    from holdfast.engines.redis.route import Route

MOST_FORMER = 8
"""How many connections to servers that had the namespace once are left open for replies."""
ALONE = 64
"""How many requests are sent by themselves after one that had to be sent twice: where many want one lock, most are."""
MOST_AT_ONCE = 65536
"""How many bytes are read at once, into a place that is there already: a new one each time costs more than to read."""
INTERRUPTED = "it was interrupted in the middle of a step"
TICK = 0.05
"""How often a connection with requests under way looks for one whose time is over."""


class Taker(Protocol):
    """Whoever waits for a reply: a future, or one of several votes that are waited for together.

    When its time is over it is told so, again and again unless it is done.
    """

    def done(self) -> bool: ...

    def set_result(self, reply: Any, /) -> None: ...

    def set_exception(self, error: Lost, /) -> None: ...


class Joinable(Protocol):
    """A request that may go as one with others."""

    @property
    def group(self) -> Hashable:
        """What those have in common."""


Entry = tuple[bytes, Taker, float] | Joint[Any, Any]
"""What is to be sent: a command, the one that waits for its reply, and until when; or several as one."""


def give(taker: Taker, reply: Any) -> None:
    """Give somebody the reply; a task that waits for it goes on at once."""
    if isinstance(taker, asyncio.Future):
        go_on(((taker, reply),))
    elif not taker.done():
        taker.set_result(reply)


class Stream(asyncio.BufferedProtocol):
    """One connection. Replies come in the order of the requests, so nobody has to wait for another's reply to send."""

    at_once = 16
    """How many requests of one turn of the loop wait for each other: the server works on them while more are made."""
    as_one = 32
    """How many of them go as one, at most: the more, the less each of them costs on both sides."""

    def __init__(self, address: Address, loop: asyncio.AbstractEventLoop) -> None:
        self.address, self.loop = address, loop
        self.problem: str | None = None
        """Why it is not usable any more."""
        self.peer: tuple[str, int] = address
        """What the address was resolved to, once it is connected."""
        self._reader = Reader()
        self._gets = self._reader.gets
        self._feed: Callable[[memoryview, int, int], None] = self._reader.feed  # type: ignore[assignment]
        # A view: asyncio's TLS takes slices of it, and would write into copies of a bytearray's.
        self._buffer = memoryview(bytearray(MOST_AT_ONCE))
        # As the loop makes them, without a frame of its own.
        self._future: Callable[[], asyncio.Future[Any]] = partial(asyncio.Future, loop=loop)
        self._transport: asyncio.Transport | None = None
        self._unsent: list[Entry] = []
        """What is written when this turn of the loop is over. Other requests may still join the last one."""
        self._writing: list[Entry] = []
        """What is being written just now."""
        self._writes = False
        """Whether the loop was told to write."""
        self._waiting: deque[tuple[Taker, float, float]] = deque()
        self._taken: Taker | None = None
        """The one whose reply is being given to it."""
        self._heard = clock.now()
        self._timers: tuple[asyncio.TimerHandle, ...] = ()
        self._ticks_by = 0.0
        """When the last of them should have come, unless the loop is busy."""

    # A signal handler may raise in the loop's thread, between any two bytecodes. A request is therefore gathered by one
    # step, and what comes in the middle of writing, reading or telling ends the connection: a reply never goes to
    # the wrong request, and each one that waits is told. What a lost callback of the loop leaves undone, `_tick` does.

    def send(self, packed: bytes, until: float) -> asyncio.Future[Any]:
        """Send a command with what else is sent in this turn of the loop; the future gets its reply or Lost."""
        future = self._future()
        if self.problem is not None:
            # It has ended since the last reply: nobody will answer.
            future.set_exception(Lost(self.problem))
            return future
        self._unsent.append((packed, future, until))
        # Nothing to do but to join the others, nearly always.
        if not self._writes or len(self._unsent) >= self.at_once or not self._timers:
            self._see_to_it()
        return future

    def send_for(self, taker: Taker, packed: bytes, until: float) -> None:
        """The same for somebody who takes the reply in another way."""
        self._unsent.append((packed, taker, until))
        self._see_to_it()

    def join(self, request: Joinable, until: float) -> asyncio.Future[Any]:
        """Send a request as one with others of this turn; the future gets its reply, Lost or APART."""
        last = self._unsent[-1] if self._unsent else None
        if last is None or isinstance(last, tuple) or last.group != request.group:
            last = self._make_joint(request)
            self._unsent.append(last)
        assert not isinstance(last, tuple)
        future = self._future()
        last.parts.append((request, until, future))
        if len(last.parts) >= self.as_one:
            self._write()
        elif not self._writes or len(self._unsent) >= self.at_once or not self._timers:
            self._see_to_it()
        return future

    def _make_joint(self, request: Any) -> Joint[Any, Any]:
        """What this one and others go as."""
        assert isinstance(request, Request)
        assert request.form.joins is not None
        return ScriptJoint(request.form.joins.script, request.group, self._send_again)

    def _send_again(self, joint: ScriptJoint, packed: bytes) -> None:
        self.send_for(joint, packed, joint.until)

    def _see_to_it(self) -> None:
        """Write what was gathered, if that is much, or see to it that it is written; and that no reply is missed."""
        if not self._timers or clock.now() > self._ticks_by:
            # Two interrupts may have come where two timers began.
            self._timers = self._set_timers()
        if len(self._unsent) >= self.at_once:
            self._write()
        elif not self._writes:
            self._writes = True
            self.loop.call_soon(self._turn_over)

    def _turn_over(self) -> None:
        self._writes = False
        if self._unsent:
            self._write()

    def _write(self) -> None:
        """Write what was gathered."""
        try:
            self._writing, self._unsent = self._unsent, []
            now = clock.now()
            out: list[bytes] = []
            takers: list[tuple[Taker, float, float]] = []
            for entry in self._writing:
                packed, taker, until = entry if isinstance(entry, tuple) else entry.entry()
                if packed:
                    out.append(packed)
                    takers.append((taker, until, now))
            self._waiting.extend(takers)
            self._writing = []
            if self.problem is not None or self._transport is None:
                self.end(self.problem or "it was not connected")
            elif out:
                self._transport.write(out[0] if len(out) == 1 else b"".join(out))
        except BaseException:
            self.end(INTERRUPTED)
            raise

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._buffer[0]:
            # No reply begins with a zero byte, so this was read and not taken.
            self.end(INTERRUPTED)
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        try:
            self._heard = clock.now()
            self._feed(self._buffer, 0, nbytes)
            self._buffer[0] = 0
        except BaseException:
            self.end(INTERRUPTED)
            raise
        self._answer()

    def _answer(self) -> None:
        """Give everybody the reply that has come for them."""
        try:
            self._taken = None
            reply = self._gets()
            while reply is not False:
                self._take(reply)
                self._taken = None
                reply = self._gets()
        except (ProtocolError, IndexError) as error:
            self.end(f"the server sent something else than replies: {error}")
        except BaseException:
            if self._taken is not None and self._taken.done():
                # One that has its reply went on, and was interrupted. What else has come is for the next turn.
                self.loop.call_soon(self._answer)
            else:
                self.end(INTERRUPTED)
            raise

    def _take(self, reply: Any) -> None:
        # Known before it is taken out: an interrupt in between leaves it to the end of the connection.
        taker = self._taken = self._waiting[0][0]
        self._waiting.popleft()
        give(taker, reply)

    def _set_timers(self) -> tuple[asyncio.TimerHandle, ...]:
        """Two: should the first one be interrupted before it has done anything, the second one does it."""
        self._ticks_by = clock.now() + 3 * TICK
        return self.loop.call_later(TICK, self._tick), self.loop.call_later(2 * TICK, self._tick)

    def _tick(self) -> None:
        """Give up on requests whose time is over; on the connection too, if it has said nothing all that time."""
        # The next ones are set before the others are cancelled: there are always some.
        try:
            former, self._timers = self._timers, self._set_timers()
        except BaseException:
            self._timers = self._set_timers()
            raise
        for timer in former:
            timer.cancel()
        if self.problem is not None:
            self.end(self.problem)
        elif self._unsent:
            self._turn_over()
        now = clock.now()
        stuck = False
        for future, until, sent in self._waiting:
            if until <= now and not future.done():
                future.set_exception(Lost("no answer in time", silent=True))
                stuck = stuck or (self._heard < sent and future.done())
        if stuck:
            self.end("no answer in time")
        if not self._waiting and not self._unsent:
            former, self._timers = self._timers, ()
            for timer in former:
                timer.cancel()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.peer = tuple((transport.get_extra_info("peername") or self.address)[:2])
        if self.problem is not None:
            abort(self.loop, self._transport)

    def connection_lost(self, error: Exception | None) -> None:
        self.end(str(error) if error else "the server closed the connection")

    def end(self, problem: str) -> None:
        """Close at once: callers that wait for a reply are told. Safe to repeat, and repeated if it was interrupted."""
        if self.problem is None:
            self.problem = problem
        if self._transport is not None:
            abort(self.loop, self._transport)
        self._disappoint(self._taken)
        # Each is told before it is taken out.
        while self._waiting:
            self._disappoint(self._waiting[0][0])
            self._waiting.popleft()
        for entries in (self._writing, self._unsent):
            while entries:
                self._disappoint(entries[0][1] if isinstance(entries[0], tuple) else entries[0])
                del entries[0]

    def _disappoint(self, taker: Taker | None) -> None:
        if taker is not None and not taker.done():
            taker.set_exception(Lost(self.problem or "it has ended"))


async def open_stream(
    address: Address, login: Login, tls: ssl.SSLContext | None, loop: asyncio.AbstractEventLoop, until: float
) -> Stream:
    """A connection that is logged in; Lost if that does not work in time, and then nothing was sent for anybody."""
    stream = Stream(address, loop)

    async def log_in() -> None:
        await connect(loop, lambda: stream, address, tls)
        replies = [await stream.send(pack(command), until) for command in login.commands()]
        login.check(replies)

    try:
        await within(until - clock.now(), log_in())
    except Lost as lost:
        stream.end(lost.problem)
        raise lost.at_login(f"cannot connect to {address}") from lost
    except OSError as error:
        problem = str(error) or "no answer in time"
        stream.end(problem)
        silent = isinstance(error, TimeoutError)
        raise Lost(f"cannot connect to {address}: {problem}", sent=False, silent=silent) from error
    except BaseException:
        stream.end("it was cancelled")
        raise
    return stream


class RespAsyncioPort:
    """Carries the requests of one loop's tasks to the server that has the namespace."""

    def __init__(self, name: str, route: Route, loop: asyncio.AbstractEventLoop) -> None:
        self.name, self.route, self.loop = name, route, loop
        self._stream: Stream | None = None
        self._former: list[Stream] = []
        self._connecting: asyncio.Task[None] | None = None
        self._crowded = 0
        """How many more requests are sent by themselves, because somebody was in the way of one that was not."""
        self._closed = False

    async def call(self, request: AnyRequest, until: float) -> Any:
        """The reply; EngineUnavailable says whether the request may have been carried out."""
        stream = self._stream
        if stream is None or stream.problem is not None:
            return await self._call_again(request, until, False)
        try:
            reply: Any = APART
            if type(request) is Request and request.own:
                if self._crowded:
                    self._crowded -= 1
                else:
                    reply = await stream.join(request, until)
                    if reply is APART:
                        self._crowded = ALONE
            if reply is APART:
                reply = await stream.send(request.packed(False), until)
            if isinstance(reply, ReplyError):
                reply = await self._after_error(request, reply, stream, False, 1, until)
        except Lost as lost:
            if not request.repeats or lost.silent:
                raise EngineFailure(self.name, lost.problem, "unknown") from lost
            request.sent_twice = True
            return await self._call_again(request, until, True)
        return reply

    async def _call_again(self, request: AnyRequest, until: float, repeated: bool) -> Any:
        """The same over a new connection, a few times: the claim id makes a repeat safe."""
        for attempt in range(MOST_REPEATS):
            try:
                stream = await self._connected(until)
            except Lost as lost:
                if lost.cut and attempt < MOST_REPEATS - 1:
                    continue
                raise EngineFailure(self.name, lost.problem, "unknown" if repeated else "not done") from lost
            try:
                reply = await stream.send(request.packed(repeated), until)
                if isinstance(reply, ReplyError):
                    reply = await self._after_error(request, reply, stream, repeated, 1, until)
            except Lost as lost:
                if not request.repeats or lost.silent or attempt == MOST_REPEATS - 1:
                    raise EngineFailure(self.name, lost.problem, "unknown") from lost
                repeated = request.sent_twice = True
                continue
            return reply
        raise AssertionError("unreachable")

    async def _after_error(
        self, request: AnyRequest, error: ReplyError, stream: Stream, repeated: bool, tried: int, until: float
    ) -> Any:
        """Try again what an error reply allows to try again; nothing was done."""
        where = redirection(error, stream.address)
        if tried > MOST_REDIRECTIONS:
            raise refused(self.name, error, repeated)
        if str(error).startswith("NOSCRIPT"):
            reply = await stream.send(request.packed_in_full(repeated), until)
        elif where is not None:
            asked, address = where
            if asked == "ASK":
                reply = await self._wait_for_move(request, error, stream, repeated, until)
            else:
                self.route.moved(address)
                if self._stream is stream:
                    # Others may wait for replies on it: it is closed with the rest.
                    self._stream = None
                    self._former.append(stream)
                    if len(self._former) > MOST_FORMER:
                        self._former.pop(0).end("the namespace is on another server")
                stream = await self._connected(until)
                reply = await stream.send(request.packed_in_full(repeated), until)
        else:
            if str(error).startswith(WRONG_SERVER):
                self.route.failed(stream.address)
                stream.end(str(error))
            raise refused(self.name, error, repeated)
        if isinstance(reply, ReplyError):
            return await self._after_error(request, reply, stream, repeated, tried + 1, until)
        return reply

    async def _wait_for_move(
        self, request: AnyRequest, error: ReplyError, stream: Stream, repeated: bool, until: float
    ) -> Any:
        """Ask again until the namespace has moved to the other node as a whole, as blocking callers do."""
        reply: Any = error
        while isinstance(reply, ReplyError) and str(reply).startswith("ASK "):
            await asyncio.sleep(MOVING)
            if clock.now() + IN_TIME >= until:
                raise refused(self.name, reply, repeated)
            reply = await stream.send(request.packed(repeated), until)
        return reply

    async def _connected(self, until: float) -> Stream:
        """The connection, made if there is none: by one task for all that want it."""
        while True:
            if self._stream is not None and self._stream.problem is None:
                return self._stream
            if self._closed:
                # By whoever closed it while others still had something to say.
                raise Lost("the client was closed", sent=False)
            others = self._connecting is not None
            if self._connecting is None or self._connecting.done():
                self._connecting = self.loop.create_task(self._connect(until))
                self._connecting.add_done_callback(self._connected_now)
            task = self._connecting
            done, _ = await asyncio.wait({task}, timeout=max(0.0, until - clock.now()))
            if not done:
                raise Lost("cannot connect in time", sent=False)
            if task.cancelled():
                raise Lost("the client was closed", sent=False)
            error = task.exception()
            if isinstance(error, Lost) and error.silent and others:
                # Whoever began it had less time than we have.
                continue
            if error is not None:
                raise error

    def _connected_now(self, task: asyncio.Task[None]) -> None:
        self._connecting = None
        if not task.cancelled():
            # Those that wanted the connection may have had less time, and are gone: asyncio would print the error.
            task.exception()

    async def _connect(self, until: float) -> None:
        tried: dict[Address, Lost] = {}
        while True:
            address = await self._locate(until)
            if address in tried:
                raise tried[address]
            try:
                # Here and not by whoever waits for this task: what is open is known to `close` from the first moment.
                self._stream = await open_stream(address, self.route.login, self.route.tls, self.loop, until)
                return
            except Lost as lost:
                self.route.failed(address)
                tried[address] = lost

    async def _locate(self, until: float) -> Address:
        """Where to connect to. Sentinels and clusters are asked by blocking code: it is rare, and written once."""
        try:
            if not self.route.asks:
                return self.route.locate(until)
            return await in_own_thread(self.loop, partial(self.route.locate, until))
        except Lost as lost:
            raise Lost(lost.problem, sent=False) from lost

    def close(self) -> None:
        """Close the connection, in the loop's thread."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        for stream in [*self._former, *([self._stream] if self._stream else [])]:
            stream.end("the client was closed")
        self._stream, self._former = None, []
