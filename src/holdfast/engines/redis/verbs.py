"""The verbs of a single Redis: each is one script."""

from __future__ import annotations

from collections.abc import Coroutine
from math import ceil
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.core.names import matches
from holdfast.core.table.commands import (
    BreakUnderWay,
    CellValue,
    Done,
    Letters,
    Mismatch,
    Opened,
    Renewed,
    SessionOver,
)
from holdfast.core.table.rows import WITHDRAWN, Session
from holdfast.engines.redis import replies
from holdfast.engines.redis.bell import Bell
from holdfast.engines.redis.ghosts import Ghosts
from holdfast.engines.resp.wire import Form, Joins, Lost, Part, Request, Script
from holdfast.errors import EngineFailure
from holdfast.model import Claim, Gone, Granted, LockInfo, Place
from holdfast.runtime.io import Io, Signal

if TYPE_CHECKING:
    from holdfast.engines.redis.engine import RedisEngine

T = TypeVar("T")
CLAIMS_A_REQUEST = 1_000
"""How many claims one request of a heartbeat keeps alive."""
ROWS_A_STEP = 256
LOCKS_A_REQUEST = 200
MOST_LISTED = 10_000
DONE = Done()
"""Made once: nobody changes it, and a release is answered by nothing else nearly always."""
ONCE = ("break", "cell_set")
"""What is never sent again: it would break whoever came next, or take what it wrote itself for somebody else's."""
MISSING = "Redis no longer has this grant: it was evicted, flushed, or lost with Redis' last writes"


def milliseconds(seconds: float | None) -> int:
    """Whole milliseconds, never 0 for something: half of one counts."""
    return 0 if seconds is None else ceil(seconds * 1000)


async def further(call: Coroutine[Any, Any, T]) -> T:
    """A call of a verb that has sent something before: "not done" may be true of the call, and not of the verb."""
    try:
        return await call
    except EngineFailure as error:
        raise EngineFailure(error.engine, error.problem, "unknown") from error


class RedisVerbs:
    """Speaks to one Redis through an Io."""

    def __init__(self, engine: RedisEngine, io: Io, bell: Signal) -> None:
        self.engine, self.io, self.bell = engine, io, bell
        self._ledger, prefix = engine.ledger, engine.prefix
        self._namespace, self._start = engine.namespace, len(engine.namespace) + 1
        names = (
            "open renew sweep close look leave hand_over adopt break inspect claims living cell_get cell_set watch "
            "unwatch fetch raise_tokens record"
        )
        self._forms = {name: Form(script(name), prefix, repeats=name not in ONCE) for name in names.split()}
        # What is neither counted nor ends by itself may be taken and given back together with others.
        several = script("several")
        self._entering = Form(script("enter"), prefix, joins=Joins(several, takes=1), spread=as_entering)
        self._releasing = Form(script("release"), prefix, again="1", joins=Joins(several, takes=0))
        self._ghosts = Ghosts(engine.ledger)

    async def _run(self, name: str, until: float, *args: Part) -> Any:
        return await self.io.call(Request(self._forms[name], args), until)

    def _lock(self, kind: str, name: str) -> str:
        """What the scripts call a lock: the namespace is in the prefix already."""
        return f"{kind[self._start :]}:{name}"

    # Sessions

    async def open_session(self, session: Session, until: float) -> Opened | SessionOver:
        secret = self.engine.notices.begin()
        if isinstance(self.bell, Bell):
            try:
                # Before anything is claimed: no wake-up can be missed.
                self.bell.listen(session.id, until)
            except Lost as lost:
                raise EngineFailure(self.engine.address, lost.problem, "not done") from lost
        self._ledger.begin()
        ttl = milliseconds(session.ttl)
        reply = await self._run("open", until, session.id, ttl, session.app, session.host, session.pid, secret)
        if reply[0] == b"over":
            return SessionOver()
        granted = int(reply[1])
        self.engine.keep_ms = f"{2 * granted + 60_000}"
        return Opened(granted / 1000)

    async def renew(self, session: str, until: float) -> Renewed | SessionOver:
        if isinstance(self.bell, Bell):
            self.bell.check()
        claims = self._ledger.confirmed()
        gone: dict[str, str] = {}
        missing: list[bytes] = []
        for first in range(0, max(1, len(claims)), CLAIMS_A_REQUEST):
            part = claims[first : first + CLAIMS_A_REQUEST]
            last = first + CLAIMS_A_REQUEST >= len(claims)
            flat = [word for claim in part for word in claim]
            beat = self._run("renew", until, session, int(last), *flat)
            reply = await (further(beat) if first else beat)
            if reply[0] == b"over":
                return SessionOver()
            texts = [text.decode() for text in reply[2]]
            gone.update(zip(texts[::2], texts[1::2], strict=True))
            missing += reply[3]
        # One that was released or withdrawn while the answer was on its way is not missed.
        for id_ in map(bytes.decode, missing):
            # Of one that was handed over or broken, Redis said why it is gone.
            if gone.get(id_, WITHDRAWN) == WITHDRAWN and self._ledger.still_there(id_):
                gone[id_] = MISSING
        told = tuple(sorted((id_, reason) for id_, reason in gone.items() if reason != WITHDRAWN))
        await self._ghosts.lay(session, int(reply[5]), self._run, until)
        return Renewed(int(reply[1]) / 1000, told, replies.seconds(reply[4]))

    async def sweep(self, until: float) -> Done:
        return replies.done(await self._run("sweep", until, ROWS_A_STEP))

    async def close_session(self, session: str, until: float) -> Done:
        return replies.done(await self._run("close", until, session, ROWS_A_STEP))

    # Claims

    async def enter(self, claim: Claim, until: float) -> Any:
        id_, note, thread, keep = claim.id, claim.note, claim.thread, self.engine.keep_ms
        lock, mode = f"{claim.kind[self._start :]}:{claim.name}", "x" if claim.mode == "exclusive" else "s"
        busy = self._ledger.sending(claim)
        alone = claim.limit or claim.max_hold is not None or "\n" in note or "\n" in thread
        own = "" if alone else f"{mode}\n{id_}\n{claim.owner}\n{lock}\n{note}\n{thread}\n{keep}\n"
        request = Request(self._entering, (claim, lock, mode, busy, keep), own, claim.session)
        try:
            reply = await self.io.call(request, until)
        except EngineFailure as error:
            if error.outcome == "not done":
                self._ledger.not_sent(claim)
            raise
        if request.sent_twice:
            self._ledger.twice.add(id_)
        if type(reply) is bytes:
            token = int(reply)
            self._ledger.holds(id_, lock, token)
            return Granted(token)
        standing = self._stands(claim, lock, replies.standing(reply))
        if request.sent_twice and not isinstance(standing, Granted | Place | SessionOver):
            # Nobody gives back what was refused.
            await further(self.leave(claim, True, until))
        return standing

    def _stands(self, claim: Claim, lock: str, standing: replies.Standing) -> Any:
        """Keep the ledger."""
        if isinstance(standing, Granted):
            self._ledger.holds(claim.id, lock, standing.token)
        elif isinstance(standing, Place):
            self._ledger.waits(claim.id, lock)
        else:
            self._ledger.forget(claim)
        return standing

    async def look(self, claim: Claim, until: float) -> Any:
        lock = self._lock(claim.kind, claim.name)
        handed = self._ledger.handed(claim.id)
        if handed is not None:
            # It lives no longer than our own last proof of life, and the session's deadline counts from that:
            # there is nothing to confirm.
            self._ledger.holds(claim.id, lock, handed.token)
            return handed
        reply = await self._run("look", until, claim.id, claim.session, lock)
        return self._stands(claim, lock, replies.standing(reply))

    async def release(self, claim: Claim, until: float) -> Done | Gone:
        id_, session = claim.id, claim.session
        token = self._ledger.token(id_)
        # Before it is sent, so that no heartbeat misses it.
        lock = self._ledger.forget(claim) or self._lock(claim.kind, claim.name)
        request = Request(self._releasing, (id_, session, lock, token, "0"), f"r\n{id_}\n{lock}\n{token}\n", session)
        try:
            reply = await self.io.call(request, until)
        except BaseException:
            # It may have gone on to one of our own, of which only the answer tells.
            self.engine.missed()
            raise
        # First: whoever holds it now has no other way to hear of it, and what comes next may fail.
        if type(reply) is bytes:
            self.engine.hand_on(reply)
        elif reply == 2:
            self.engine.missed()
        if id_ in self._ledger.twice:
            await further(self.leave(claim, True, until))
        return Gone(reply[1].decode()) if isinstance(reply, list) else DONE

    async def leave(self, claim: Claim, unanswered: bool, until: float) -> Done:
        self._ledger.forget(claim)
        lock = self._lock(claim.kind, claim.name)
        may_arrive = unanswered or claim.id in self._ledger.twice
        done = replies.done(await self._run("leave", until, claim.id, claim.session, lock, int(may_arrive)))
        self._ledger.twice.discard(claim.id)
        return done

    async def hand_over(self, claim: Claim, ticket: str, until: float) -> Done | Gone:
        reply = await self._run("hand_over", until, claim.id, self._lock(claim.kind, claim.name), ticket)
        return replies.done(reply) if reply[0] == b"done" else Gone(reply[1].decode())

    async def adopt(self, claim: Claim, source: str, ticket: str, until: float) -> Any:
        lock = self._lock(claim.kind, claim.name)
        self._ledger.sending(claim)
        mode = "x" if claim.mode == "exclusive" else "s"
        reply = await self._run(
            "adopt", until, claim.id, claim.session, claim.owner, lock, mode, claim.limit, source, ticket, claim.note,
            claim.thread,
        )  # fmt: skip
        return self._stands(claim, lock, replies.standing(reply))

    # For people

    async def break_lock(self, kind: str, name: str, force: bool, until: float) -> BreakUnderWay:
        told = await self._run("break", until, self._lock(kind, name), int(force))
        return BreakUnderWay(tuple(id_.decode() for id_ in told))

    async def inspect(self, kind: str, name: str, until: float) -> LockInfo:
        (found,) = await self._run("inspect", until, self._lock(kind, name))
        return replies.info(found, self._namespace)

    async def list(self, prefix: str, kind: str, until: float) -> tuple[LockInfo, ...]:
        wanted: set[str] = set()
        for session in await self._run("living", until):
            cursor: bytes = b"0"
            while True:
                cursor, locks = await self._run("claims", until, session, cursor)
                for lock in locks:
                    its_kind, _, name = lock.decode().partition(":")
                    if kind in (f"{self._namespace}.", f"{self._namespace}.{its_kind}") and matches(prefix, name):
                        wanted.add(lock.decode())
                if cursor == b"0":
                    break
        names = sorted(wanted, key=lambda lock: tuple(lock.partition(":")))[:MOST_LISTED]
        infos: list[LockInfo] = []
        for first in range(0, len(names), LOCKS_A_REQUEST):
            found = await self._run("inspect", until, *names[first : first + LOCKS_A_REQUEST])
            infos += (replies.info(one, self._namespace) for one in found)
        return tuple(info for info in infos if info.holders or info.waiters)

    # Cells

    async def cell_get(self, kind: str, name: str, until: float) -> CellValue:
        value, version = await self._run("cell_get", until, self._lock(kind, name))
        return CellValue(value, int(version))

    async def cell_set(
        self, kind: str, name: str, value: bytes | None, version: int | None, keep: float | None, until: float
    ) -> CellValue | Mismatch:
        reply = await self._run(
            "cell_set", until, self._lock(kind, name), int(value is not None), value or b"",
            "" if version is None else version, milliseconds(keep),
        )  # fmt: skip
        return Mismatch(int(reply[1])) if reply[0] == b"mismatch" else CellValue(value, int(reply[1]))

    # Watches

    async def watch(self, session: str, id_: str, kind: str, prefix: str, until: float) -> Done | SessionOver:
        reply = await self._run("watch", until, session, id_, kind[self._start :], prefix)
        return SessionOver() if reply[0] == b"over" else Done()

    async def cell_watch(self, session: str, id_: str, kind: str, name: str, until: float) -> Done | SessionOver:
        reply = await self._run("watch", until, session, id_, f"cell:{kind[self._start :]}", name)
        return SessionOver() if reply[0] == b"over" else Done()

    async def fetch(self, session: str, id_: str, after: int, until: float) -> Letters | SessionOver:
        reply = await self._run("fetch", until, session, id_, after)
        return SessionOver() if reply[0] == b"over" else replies.letters(reply, self._namespace, after)

    async def unwatch(self, session: str, id_: str, until: float) -> Done:
        return replies.done(await self._run("unwatch", until, session, id_))

    async def raise_tokens(self, above: int, until: float) -> Done:
        return replies.done(await self._run("raise_tokens", until, above))


def as_entering(claim: Claim, lock: str, mode: str, busy: bool, keep: str) -> tuple[Part, ...]:
    """The arguments of `enter`. Numbers as text, which is packed in half the time."""
    waits = "0" if not claim.waits else "2" if busy else "1"
    max_hold = f"{milliseconds(claim.max_hold)}"
    limit = f"{claim.limit}"
    return (
        claim.id, claim.session, claim.owner, lock, mode, limit, waits, max_hold, claim.note, claim.thread, keep,
    )  # fmt: skip


_scripts: dict[str, Script] = {}


def script(name: str) -> Script:
    """A script by its name, read once."""
    if name not in _scripts:
        _scripts[name] = Script(name)
    return _scripts[name]
