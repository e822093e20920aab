"""The verbs of Redlock: every step is a round, asked of all nodes at the same time, decided by a majority."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.core import quorum
from holdfast.core.names import matches
from holdfast.core.table.commands import BreakUnderWay, Done, Opened, Renewed, SessionOver
from holdfast.core.table.rows import WITHDRAWN, Session
from holdfast.engines.narrow import NarrowVerbs
from holdfast.engines.redis.verbs import CLAIMS_A_REQUEST, further, milliseconds, script
from holdfast.engines.redlock.ledger import Debt
from holdfast.engines.redlock.nodes import Answers, NoAnswer, Round
from holdfast.engines.redlock.tail import Tail
from holdfast.engines.redlock.waiters import Waiters
from holdfast.engines.resp.wire import Form, Part, Plain, Request
from holdfast.errors import EngineFailure
from holdfast.model import Claim, Gone, Granted, LockInfo, Party, Place, Refused
from holdfast.runtime.io import Io, Signal

if TYPE_CHECKING:
    from holdfast.engines.redlock.engine import RedlockEngine

T = TypeVar("T")
AHEAD = 10_000
"""By how many µs the token that a client hopes for is ahead of what the nodes' clocks are thought to say.

More than a request takes from many tasks of a busy loop: one that comes too late costs another round.
"""
BROKEN_FOR = 20_000
"""For how many ms, at the least, nodes remember that an operator broke a claim."""
CLOSING = 1.0
"""How long the end of a session waits for tries that are under way, in seconds."""
LAST_MOMENT = 0.7
"""The share of the ttl for which silent nodes may leave open whether a claim is held, while others are confirmed."""
UNANSWERED = "a node did not answer, and may do late what was asked of it"
SPENT = "every token under 2^53 has been given out"
LOST = "a majority of the nodes no longer has it"


class RedlockVerbs(NarrowVerbs):
    """Speaks to all nodes through an Io."""

    def __init__(self, engine: RedlockEngine, io: Io, bell: Signal) -> None:
        self.engine, self.io, self.bell = engine, io, bell
        self._waiters = Waiters(engine, io)
        self._ledger, self._prefix, self._nodes = engine.ledger, engine.prefix, len(engine.routes)
        self._namespace, self._start = engine.namespace, len(engine.namespace) + 1
        names = ("enter", "confirm", "extend", "release", "inspect", "break")
        self._forms = {name: Form(script(f"redlock_{name}"), engine.prefix) for name in names}

    async def _round(
        self, name: str, until: float, *args: Part, nodes: frozenset[int] | None = None, tail: Tail | None = None
    ) -> Answers:
        request = Request(self._forms[name], args)
        answers: Answers = await self.io.call(Round(request, self.engine.node_limit, nodes, tail), until)
        return answers

    def _unavailable(self, answers: Answers) -> EngineFailure:
        problems = "; ".join(
            f"{route.address}: {answer.problem}"
            for route, answer in zip(self.engine.routes, answers, strict=True)
            if isinstance(answer, NoAnswer)
        )
        sent = any(not isinstance(answer, NoAnswer) or answer.sent for answer in answers)
        problem = f"no majority of the {self._nodes} nodes answered ({problems})"
        return EngineFailure(self.engine.address, problem, "unknown" if sent else "not done")

    def _check_majority(self, answers: Answers) -> list[Any]:
        """The answers, if they are from a majority."""
        given = [answer for answer in answers if not isinstance(answer, NoAnswer)]
        if not quorum.reached(len(given), self._nodes):
            raise self._unavailable(answers)
        return given

    def _lock(self, claim: Claim) -> str:
        return f"{claim.kind[self._start :]}:{claim.name}"

    # Sessions: known to this client alone. Each lock has its own expiry on each node.

    async def open_session(self, session: Session, until: float) -> Opened | SessionOver:
        opened = self.io.now()
        self._check_majority(await self._round("inspect", until))
        self.engine.check_nodes()
        for claim_id in self._ledger.begin(session.id):
            # It belongs to the session before, and has to learn that.
            self.engine.bell.try_at(claim_id, opened)
        self._ledger.confirmed = opened
        self.engine.session, self.engine.ttl = session, session.ttl
        return Opened(milliseconds(session.ttl) / 1000)

    async def renew(self, session: str, until: float) -> Renewed | SessionOver:
        known = self.engine.session
        if known is None or known.id != session:
            return SessionOver()
        began = self.io.now()
        claims = list(self._ledger.beat(began).items())
        gone: list[tuple[str, str]] = []
        undecided: list[str] = []
        for number, part in enumerate(portions(claims)):
            kept = self._extend(part, until)
            lost, open_ = await (further(kept) if number else kept)
            gone += lost
            undecided += open_
        if not claims:
            self._check_majority(await self._round("inspect", until))
        await self._pay(until)
        if len(undecided) < len(claims) - len(gone) and began - self._ledger.confirmed > LAST_MOMENT * known.ttl:
            # The silent nodes have had their time. The session's deadline would take what is confirmed with it.
            gone += [(claim_id, LOST) for claim_id in undecided]
            undecided = []
        for claim_id, _ in gone:
            self._ledger.lost(claim_id)
        if undecided:
            problem = f"silent nodes decide whether {len(undecided)} claims are still held by a majority"
            return Renewed(milliseconds(known.ttl) / 1000, tuple(gone), undecided=problem)
        self._ledger.confirmed = began
        return Renewed(milliseconds(known.ttl) / 1000, tuple(gone))

    async def _extend(self, claims: Sequence[tuple[str, str]], until: float) -> tuple[list[tuple[str, str]], list[str]]:
        """Keep claims. Which of them are gone, and why; and for which of them the silent nodes decide.

        EngineUnavailable if no majority answers.
        """
        flat = [word for claim in claims for word in claim]
        answers = await self._round("extend", until, milliseconds(self.engine.ttl), *flat)
        given = self._check_majority(answers)
        silent = self._nodes - len(given)
        gone, undecided = [], []
        for at, (claim_id, _) in enumerate(claims):
            said = [answer[at] for answer in given]
            reasons = [reason.decode() for reason in said if isinstance(reason, bytes)]
            votes = sum(answer == 1 for answer in said)
            # One that was given back while the answer was on its way is not missed.
            if not self._ledger.holds(claim_id) or (not reasons and quorum.reached(votes, self._nodes)):
                continue
            if not reasons and quorum.reached(votes + silent, self._nodes):
                undecided.append(claim_id)
            else:
                gone.append((claim_id, reasons[0] if reasons else LOST))
        return gone, undecided

    async def _pay(self, until: float) -> None:
        """Go on telling nodes that did not answer that claims were given back: many at once, while one is away."""
        now = self.io.now()
        if self._ledger.debts:
            self.engine.settle(wait=False)
        owed: dict[frozenset[int], list[Debt]] = {}
        for debt in list(self._ledger.debts):
            if debt.ends <= now:
                self._ledger.paid(debt)
            elif debt.due <= now:
                owed.setdefault(debt.nodes, []).append(debt)
        for nodes, debts in owed.items():
            for part in portions(debts):
                flat = [word for debt in part for word in (debt.claim_id, debt.lock, 1)]
                answers = await self._round("release", until, self._remembered(), *flat, nodes=nodes)
                silent = frozenset(node for node in nodes if isinstance(answers[node], NoAnswer))
                for debt in part:
                    debt.nodes &= silent
                    if not debt.nodes:
                        self._ledger.paid(debt)

    async def sweep(self, until: float) -> Done:
        return Done()

    async def close_session(self, session: str, until: float) -> Done:
        held = list(self._ledger.beat(self.io.now()).items())
        # Whoever is being granted something at this moment gives it back, as long as there are connections.
        self._ledger.begin("")
        patience = min(until, self.io.now() + CLOSING)
        while self._ledger.trying and self.io.now() < patience:
            await self.io.wait(self.io.signal(), self.io.now() + 0.005)
        self.engine.settle(wait=True)
        for part in portions(held):
            flat = [word for claim_id, lock in part for word in (claim_id, lock, 1)]
            await self._round("release", until, self._remembered(), *flat)
        self.engine.session = None
        return Done()

    def _remembered(self) -> int:
        """For how many ms a node remembers that a claim was withdrawn: a late request has expired by then."""
        return 2 * milliseconds(self.engine.ttl) + 10_000

    # Claims

    async def enter(self, claim: Claim, until: float) -> Any:
        """Of this client's claims on a name, only the first one asks the nodes; the others wait behind it."""
        session, lock, waiters = self.engine.session, self._lock(claim), self._waiters
        if session is None or session.id != claim.session:
            return SessionOver()
        now = self.io.now()
        # A session that was not confirmed for a ttl holds nothing, also where its end is not known here yet.
        held = now < self._ledger.confirmed + self.engine.ttl and self._ledger.holds_lock(lock, now)
        if not claim.waits:
            # One that waits came first, or the nodes would only say what is known here.
            return Refused() if held or waiters.any(lock) else await self._ask(session, claim, until)
        waited = waiters.knows(claim, lock)
        place = waiters.place(claim, lock, held)
        if place is not None:
            return place
        try:
            reply = await self._ask(session, claim, until)
        except EngineFailure as error:
            if error.outcome == "not done" and not waited:
                waiters.end(claim, lock)  # nothing is left of it, and it is not withdrawn
            raise
        if reply == Gone(UNANSWERED):
            waiters.keep_turn(claim, lock)
        elif not isinstance(reply, Place):
            waiters.end(claim, lock)
        return reply

    look = enter
    """A waiter that was woken tries again."""

    async def _ask(self, session: Session, claim: Claim, until: float) -> Any:
        self._ledger.trying.add(claim.id)
        self._ledger.ask(claim.id)
        try:
            return await self._try(session, claim, until)
        finally:
            self._ledger.trying.discard(claim.id)

    async def _try(
        self, session: Session, claim: Claim, until: float
    ) -> Granted | Place | Refused | Gone | SessionOver:
        """One try: all nodes at once. What is short of a majority is given back everywhere before it is answered."""
        if self._ledger.spoilt(claim.id):
            await self._give_back(claim, True, until)
            return Gone(UNANSWERED)
        lock, started = self._lock(claim), self.io.now()
        who = introduce(claim.owner, session.app, session.host, session.pid, claim.thread, claim.note)
        hoped = self.engine.hoped_token()
        answers = await self._round(
            "enter", until, claim.id, lock, milliseconds(session.ttl), hoped,
            milliseconds(claim.max_hold), who,
        )  # fmt: skip
        # Nearly always: all have taken the hoped token, and there is nothing left to count.
        agreed = answers.count([b"granted", b"%d" % hoped, -1]) == self._nodes
        if agreed and await self._proven(claim, lock, started, until):
            return Granted(hoped)
        self._ledger.doubt(claim.id, unanswered(answers))
        given = self._check_majority(answers)
        granted = [answer for answer in given if answer[0] == b"granted"]
        if quorum.reached(len(granted), self._nodes):
            proposals = [int(answer[1]) for answer in granted]
            self.engine.heard_token(quorum.token_of(proposals), hoped)
            token = await self._token(claim, lock, proposals, until)
            if token is not None and await self._proven(claim, lock, started, until):
                ends = [answer[2] for answer in granted if answer[2] >= 0]
                return Granted(token, None, min(ends) / 1000 if ends else None)
        if self._ledger.session != session.id:
            await self._give_back(claim, True, until)
            return SessionOver()
        return await self._try_failed(claim, given, until)

    async def _token(self, claim: Claim, lock: str, proposals: list[int], until: float) -> int | None:
        """The token, once a majority has it on record while this claim holds them; None if that failed."""
        token = quorum.token_of(proposals)
        if not quorum.confirmed(proposals, self._nodes):
            answers = await self._round("confirm", until, claim.id, lock, token)
            if not quorum.reached(sum(answer == 1 for answer in answers), self._nodes):
                return None
        return token

    async def _proven(self, claim: Claim, lock: str, started: float, until: float) -> bool:
        """Whether the grant is good for a while. If a heartbeat began meanwhile, it is confirmed once more."""
        ttl = self.engine.ttl
        ends = inf if claim.max_hold is None else started + claim.max_hold
        while self._ledger.session == claim.session and quorum.left(ttl, started, self.io.now()) > 0:
            if self._ledger.hold(claim.session, claim.id, lock, started, ends):
                return True
            started = self.io.now()
            answers = await self._round("extend", until, milliseconds(ttl), claim.id, lock)
            said = [answer for answer in answers if not isinstance(answer, NoAnswer)]
            if not quorum.reached(sum(answer[0] == 1 for answer in said), self._nodes):
                return False
        return False

    async def _try_failed(self, claim: Claim, given: list[Any], until: float) -> Place | Refused | Gone:
        """Give back what was taken, then wait for another try, or say no."""
        taken = [answer for answer in given if answer[0] == b"taken"]
        gone = [answer for answer in given if answer[0] == b"gone"]
        spent = quorum.out_of_reach(sum(answer[0] == b"spent" for answer in given), self._nodes)
        waits = claim.waits and not gone and not spent
        try:
            await self._give_back(claim, not waits, until)
        except EngineFailure:
            self._ledger.spoil(claim.id)
            raise
        if gone:
            return Gone(gone[0][1].decode())
        if spent:
            # A majority has confirmed that nothing is left of this try.
            raise EngineFailure(self.engine.address, SPENT, "not done")
        if waits and self._ledger.doubtful(claim.id):
            # What a node has not answered may arrive late. A release of this try would take the next one's vote away,
            # so the next one is another claim, which gets the turn of this one.
            await self._give_back(claim, True, until)
            return Gone(UNANSWERED)
        blocker = party(taken[0][1:], claim.name) if taken else None
        if not waits:
            return Refused(blocker)
        return self._waiters.pause(claim, blocker)

    async def _give_back(self, claim: Claim, for_good: bool, until: float) -> list[Any]:
        """Release everywhere. A majority's confirmation is enough; the rest is gone after with the heartbeats."""
        self._ledger.forget(claim.id, for_good)
        stays_away = for_good and self._ledger.doubtful(claim.id)
        lock = self._lock(claim)
        answers = await self._round("release", until, self._remembered(), claim.id, lock, int(stays_away))
        try:
            return self._given_back(claim, for_good, answers)
        except EngineFailure as error:
            # Nothing was done now, but before: some nodes may have given their votes.
            raise EngineFailure(error.engine, error.problem, "unknown") from error

    def _given_back(self, claim: Claim, for_good: bool, answers: Answers) -> list[Any]:
        """What the nodes say to a release, if a majority has answered. The others are owed it."""
        self._ledger.doubt(claim.id, unanswered(answers))
        given = self._check_majority(answers)
        if for_good:
            self._ledger.over(claim.id)
        silent = frozenset(node for node, answer in enumerate(answers) if isinstance(answer, NoAnswer))
        if for_good and silent:
            self._ledger.owe(Debt(claim.id, self._lock(claim), silent, self.io.now() + self._remembered() / 1000))
        elif for_good:
            self._ledger.settle(claim.id)
        return [answer[0] for answer in given]

    async def release(self, claim: Claim, until: float) -> Done | Gone:
        if self.engine.session is None or self.engine.session.id != claim.session:
            return Gone("its session ran out")
        try:
            return await self._release(claim, until)
        finally:
            self._waiters.freed(self._lock(claim))

    async def _release(self, claim: Claim, until: float) -> Done | Gone:
        lock, now, remembered = self._lock(claim), self.io.now(), self._remembered()
        debt = Debt(claim.id, lock, frozenset(), now + remembered / 1000, now + self.engine.node_limit)
        tail = Tail(self._ledger, debt, self._nodes)
        self._ledger.forget(claim.id, True)
        stays_away = self._ledger.doubtful(claim.id)
        answers = await self._round("release", until, remembered, claim.id, lock, int(stays_away), tail=tail)
        if tail.begun:
            # A majority had it, and nobody has taken it away. Nobody asks for this claim again.
            self._ledger.over(claim.id)
            return Done()
        said = self._given_back(claim, True, answers)
        reasons = [reason.decode() for _, reason in said if reason is not None and reason.decode() != WITHDRAWN]
        if reasons:
            return Gone(reasons[0])
        if quorum.out_of_reach(sum(held == 0 for held, _ in said), self._nodes):
            return Gone(LOST)
        return Done()

    async def leave(self, claim: Claim, unanswered: bool, until: float) -> Done:
        self.engine.bell.forget(claim.id)
        if self.engine.session is None or self.engine.session.id != claim.session:
            return Done()
        # At once: a withdrawal that no node answers must not keep those behind it waiting.
        self._waiters.end(claim, self._lock(claim))
        if self._ledger.asked(claim.id):
            if unanswered:
                self._ledger.doubt(claim.id, frozenset(range(self._nodes)))
            await self._give_back(claim, True, until)
            self._waiters.freed(self._lock(claim))
        return Done()

    # For people

    async def break_lock(self, kind: str, name: str, force: bool, until: float) -> BreakUnderWay:
        answers = await self._round("break", until, f"{kind[self._start :]}:{name}", int(force), BROKEN_FOR)
        told = Counter(answer.decode() for answer in self._check_majority(answers) if answer)
        return BreakUnderWay(tuple(told))

    async def inspect(self, kind: str, name: str, until: float) -> LockInfo:
        answers = await self._round("inspect", until, f"{kind[self._start :]}:{name}")
        return self._info(kind, name, [answer[0] for answer in self._check_majority(answers)])

    def _info(self, kind: str, name: str, found: list[Any]) -> LockInfo:
        """What a majority of the nodes says."""
        votes = Counter(row[0] for row in found if row)
        holders = [row for row in found if row and quorum.reached(votes[row[0]], self._nodes)]
        if not holders:
            return LockInfo(kind, name)
        # A majority has confirmed the grant's token. Any other node may still have the one that it has proposed.
        tokens = Counter(row[2] for row in holders)
        return LockInfo(kind, name, (party(max(holders, key=lambda row: tokens[row[2]]), name),))

    async def list(self, prefix: str, kind: str, until: float) -> tuple[LockInfo, ...]:
        start = f"{self._prefix}lock:"
        wanted: set[str] = set()
        for node in range(self._nodes):
            cursor = b"0"
            while True:
                page = Plain(("SCAN", cursor, "MATCH", f"{start}*", "COUNT", 1000))
                answer = (await self.io.call(Round(page, self.engine.node_limit, frozenset({node})), until))[node]
                if isinstance(answer, NoAnswer):
                    break
                cursor, keys = answer
                wanted.update(key.decode().removeprefix(start) for key in keys)
                if cursor == b"0":
                    break
        infos = []
        for lock in sorted(wanted, key=lambda lock: tuple(lock.partition(":"))):
            short, _, name = lock.partition(":")
            if kind in (f"{self._namespace}.", f"{self._namespace}.{short}") and matches(prefix, name):
                infos.append(await self.inspect(f"{self._namespace}.{short}", name, until))
        return tuple(info for info in infos if info.holders)

    async def raise_tokens(self, above: int, until: float) -> Done:
        request = Request(Form(script("raise_tokens"), self._prefix), (above,))
        self._check_majority(await self.io.call(Round(request, self.engine.node_limit), until))
        return Done()


def portions(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """So many at a time as one request takes."""
    for first in range(0, len(items), CLAIMS_A_REQUEST):
        yield items[first : first + CLAIMS_A_REQUEST]


@lru_cache(maxsize=1024)
def introduce(owner: str, app: str, host: str, pid: int, thread: str, note: str) -> str:
    """Who it is, as the nodes keep it for people; whoever asks once mostly asks again."""
    return json.dumps({"owner": owner, "app": app, "host": host, "pid": pid, "thread": thread, "note": note})


def unanswered(answers: Answers) -> frozenset[int]:
    """The nodes that may still do what was asked of them."""
    return frozenset(node for node, answer in enumerate(answers) if isinstance(answer, NoAnswer) and answer.sent)


def party(row: list[Any], name: str) -> Party:
    """Who holds a lock, as its node has it on record."""
    claim_id, who, token, since, *age = row
    known = json.loads(who)
    return Party(
        claim=claim_id.decode(),
        owner=known["owner"],
        app=known["app"],
        host=known["host"],
        pid=known["pid"],
        thread=known["thread"],
        note=known["note"],
        since=int(since) / 1000,
        age=max(0.0, int(age[0]) / 1000 if age else time.time() - int(since) / 1000),
        mode="exclusive",
        token=int(token),
        name=name,
    )
