"""One operation of one client behind a proxy, and independent clients that see what came of it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Self

from holdfast import EngineUnavailable, HoldfastError, LockLost, NotAcquired
from holdfast.model import Guarantees
from tests.conformance.apis import Actor, Api, Front
from tests.conformance.engines import Subject
from tests.faults.message_proxy import Fault, MessageProxy
from tests.faults.messages import FRAMERS

TTL = 3.0
CALL_LIMIT = 1.0
"""How long a request of the client under test may go unanswered."""
AT_ONCE = 0.4
"""Within which time an engine shows what has happened already."""
LATENESS = 0.6
"""By how much an answer may be later than promised, on a machine that is busy with other tests."""
_numbers = itertools.count(1)


@dataclass
class Outcome:
    """What the client was told."""

    value: Any = None
    error: BaseException | None = None
    took: float = 0.0

    @property
    def done(self) -> bool:
        return self.error is None

    @property
    def unknown(self) -> bool:
        return isinstance(self.error, EngineUnavailable) and self.error.outcome == "unknown"

    @property
    def not_done(self) -> bool:
        """Whether it was told that nothing has happened."""
        return (isinstance(self.error, EngineUnavailable) and not self.unknown) or self.gave_up

    @property
    def gave_up(self) -> bool:
        return isinstance(self.error, NotAcquired)

    def __str__(self) -> str:
        what = f"{self.value!r}" if self.error is None else f"{type(self.error).__name__}: {self.error}"
        return f"{what} after {self.took:.2f} s"


@dataclass
class Site:
    """A namespace for many scenes, one after the other, and two clients with nothing between them and the engine.

    Scenes side by side have one each: a transaction that stands still keeps others of its namespace waiting.
    """

    subject: Subject
    api: Api
    url: str
    namespace: str
    rival: Any
    judge: Any

    @classmethod
    async def open(cls, subject: Subject, api: Api, url: str) -> Self:
        if subject.name == "redlock":
            url += "?node_limit=0.5"
        namespace = f"site-{next(_numbers)}"
        # Where no notice is sent, a holder hears of its loss with its next heartbeat.
        ttls = {"rival": min(subject.ttl, 10.0) * 3, "judge": 30.0}
        clients = [await api.connect(url, ttl=ttl, app=app, namespace=namespace) for app, ttl in ttls.items()]
        return cls(subject, api, url, namespace, *clients)

    @property
    def guarantees(self) -> Guarantees:
        found: Guarantees = self.judge.guarantees
        return found

    @property
    def lag(self) -> float:
        """How long after a claim's end at the latest the engine shows it."""
        return TTL + self.subject.lag + 2.0

    @property
    def at_once(self) -> float:
        """Within which time the engine shows what has happened already.

        A session of a database that is not leased ends when the server notices that its connection has.
        """
        return AT_ONCE if self.guarantees.leased else AT_ONCE + self.subject.lag + 1.0

    @property
    def word(self) -> float:
        """How long it takes a holder to hear that its grant is lost."""
        return AT_ONCE + 1.0 + (0.0 if self.guarantees.notified else self.subject.ttl)

    async def close(self) -> None:
        for client in (self.rival, self.judge):
            actor = self.api.actor()
            await Front(actor, client).close()
            await actor.end()


@dataclass
class Scene:
    """What one operation needs. Its names are its own, so that scenes may run side by side."""

    site: Site
    fault: Fault | None
    name: str = field(default_factory=lambda: f"k{next(_numbers)}")
    grants: list[Front] = field(default_factory=list)
    """What the client under test was granted."""
    kept: dict[str, Any] = field(default_factory=dict)
    """What a step leaves for the next."""

    def __post_init__(self) -> None:
        self.stack = ExitStack()
        self.actors: list[Actor] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.proxies: list[MessageProxy] = []
        self.subject = self.site.subject
        self.usual = TTL

    async def open(self) -> None:
        """Connect the client under test."""
        url = self.site.url
        scheme, _, rest = url.partition("://")
        authority, slash, path = rest.partition("/")
        userinfo, at, hosts = authority.rpartition("@")
        for host in hosts.split(","):
            proxy = MessageProxy(int(host.rpartition(":")[2]), FRAMERS[scheme])
            self.proxies.append(self.stack.enter_context(proxy))
        hosts = ",".join(f"127.0.0.1:{proxy.port}" for proxy in self.proxies)
        url = f"{scheme}://{userinfo}{at}{hosts}{slash}{path}"
        self.client = await self.site.api.connect(url, ttl=TTL, app="far", namespace=self.site.namespace)
        self.far = Front(self.actor(), self.client)
        self.rival, self.judge = Front(self.actor(), self.site.rival), Front(self.actor(), self.site.judge)

    def actor(self) -> Actor:
        actor = self.site.api.actor()
        self.actors.append(actor)
        return actor

    def another(self, front: Front) -> Front:
        """The same client in the hands of another thread or task: another owner."""
        return front.by(self.actor())

    def begin(self, work: Awaitable[Any]) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)
        self.tasks.append(task)
        return task

    async def warm(self) -> None:
        """Let the client have its session and its connections."""
        await (await self.far.lock(f"{self.name}-warm").acquire(wait=10.0)).release()

    def arm(self) -> None:
        """Let the fault strike; on most of several nodes, if it is about more than one connection."""
        self.client._core.call_limit, self.usual = CALL_LIMIT, self.client._core.call_limit
        struck = self.proxies
        if self.fault is not None and len(self.proxies) > 1:
            struck = self.proxies[: 1 if self.fault.how == "silent link" else len(self.proxies) // 2 + 1]
        for proxy in self.proxies:
            proxy.arm(self.fault if proxy in struck else None)

    def heal(self) -> None:
        self.client._core.call_limit = self.usual
        for proxy in self.proxies:
            proxy.heal()

    @property
    def count(self) -> int:
        """How many requests there were, to one server."""
        return max(proxy.count for proxy in self.proxies)

    @property
    def struck(self) -> bool:
        return any(proxy.struck for proxy in self.proxies)

    async def end(self) -> None:
        """Close the client; nothing is between it and the engine any more."""
        self.heal()
        for task in self.tasks:
            task.cancel()
        came = await asyncio.gather(*self.tasks, return_exceptions=True)
        for thing in (*self.kept.values(), *came):
            if isinstance(thing, Front) and getattr(thing.target, "valid", False):
                with contextlib.suppress(HoldfastError):
                    await thing.release()
        try:
            await self.far.close()
        except EngineUnavailable:
            pass  # over a connection that has ended: its session ends with its ttl
        finally:
            await asyncio.gather(*(actor.end() for actor in self.actors))
            self.stack.close()

    # What is to be seen

    async def claims(self, name: str, kind: str) -> str:
        """Who holds and who waits, as an independent client sees it."""
        info = await self.judge.inspect(name, kind=kind)
        return f"held by {[one.app for one in info.holders]}, waiting {[one.app for one in info.waiters]}"

    async def count_claims(self, name: str, kind: str) -> int:
        info = await self.judge.inspect(name, kind=kind)
        return len(info.holders) + len(info.waiters)

    async def expect_claims(self, outcome: Outcome, known: int, name: str = "", kind: str = "lock") -> None:
        """Nothing is held or queued that the caller does not know of; at once, if it was told so."""
        name = name or self.name
        within = self.site.at_once if outcome.not_done else self.site.lag
        await self.eventually(
            lambda: self._are(known, name, kind), within, f"{known} claims, but {{}}", lambda: self.claims(name, kind)
        )

    async def _are(self, known: int, name: str, kind: str) -> bool:
        return await self.count_claims(name, kind) == known

    async def eventually(
        self,
        condition: Callable[[], Awaitable[bool]],
        within: float,
        what: str,
        story: Callable[[], Awaitable[str]] | None = None,
    ) -> None:
        until = time.monotonic() + within
        while not await condition():
            if time.monotonic() > until:
                seen = "" if story is None else await story()
                raise AssertionError(f"not within {within:g} s: {what.format(seen)}")
            await asyncio.sleep(0.02)

    # Grants

    def grant(self, outcome: Outcome) -> Front:
        """What the client was granted, on record from now on."""
        grant: Front = outcome.value
        self.grants.append(grant)
        return grant

    async def taken(self, acquiring: Awaitable[Any]) -> Front:
        """Another client's grant, of what conflicts with every grant of ours: none of them is valid any more."""
        theirs: Front = await acquiring
        valid = [grant for grant in self.grants if grant.target.valid]
        if not self.site.guarantees.leased:
            # The server may release before the holder knows: it hears of it soon.
            for grant in valid:
                await self.eventually(self.is_lost(grant), self.site.word, "the holder hears of the loss")
        else:
            assert not valid, f"two valid grants: {valid[0].target!r} and another client's"
        return theirs

    async def expect_free(self, outcome: Outcome, lock: Any, within: float | None = None) -> None:
        """Another client gets the lock as soon as it may."""
        wait = within if within is not None else self.site.at_once if outcome.not_done else self.site.lag
        try:
            grant = await self.taken(lock.acquire(wait=max(wait, 1.0)))
        except NotAcquired as error:
            raise AssertionError(f"another client does not get it: {error}") from error
        await grant.release()

    async def give_back(self, grant: Front) -> None:
        """Release a grant that may have been lost, over connections that may have ended."""
        sure = grant.target.valid and grant.target.remaining > 0.2
        try:
            await grant.release()
        except LockLost:
            assert not sure or not self.site.guarantees.leased, "a grant was lost that was valid"
        except EngineUnavailable:
            pass  # it goes on by itself; whether it does is seen by who comes next
        assert not grant.target.valid

    def is_lost(self, grant: Front) -> Callable[[], Awaitable[bool]]:
        """Whether a client has heard that its grant is lost."""

        async def lost() -> bool:
            return not grant.target.valid

        return lost

    async def expect_work(self) -> None:
        """The client is of use after the fault."""
        for left in (2, 1, 0):
            try:
                grant = await self.another(self.far).lock(f"{self.name}-after").acquire(wait=self.site.lag)
                await grant.release()
                return
            except EngineUnavailable:
                if not left:
                    raise


async def told(work: Awaitable[Any]) -> Outcome:
    """What a call comes to."""
    started = time.monotonic()
    try:
        return Outcome(value=await work, took=time.monotonic() - started)
    except (HoldfastError, LockLost) as error:
        return Outcome(error=error, took=time.monotonic() - started)
