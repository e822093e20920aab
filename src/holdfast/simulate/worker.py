"""What a process does with a lock: take it, read, think, write, give it back, and write down all of it."""

from __future__ import annotations

from math import ceil
from typing import Any

from holdfast.errors import EngineUnavailable, HoldfastError, LockLost, NotHeld, StaleToken
from holdfast.locks.acquire import acquire, try_acquire
from holdfast.locks.hold import Entry, Hold
from holdfast.locks.owner import owner
from holdfast.locks.release import release
from holdfast.locks.spec import Spec, make_spec
from holdfast.runtime.simulated import Cancelled
from holdfast.simulate.resource import Read, Write
from holdfast.simulate.simulation import Person
from holdfast.verify.history import Outcome

LOOKS, LOOKS_EVERY = 3, 0.5
"""How often a holder looks at its grant while it works: so many times, and at least every so many seconds."""
PATIENCE = 2.0
"""How long the resource is waited for, in seconds."""


def outcome_of(error: BaseException) -> Outcome:
    """Whether it was certainly not done."""
    if isinstance(error, EngineUnavailable):
        return "failed" if error.outcome == "not done" else "unknown"
    return "failed" if isinstance(error, HoldfastError) else "unknown"


class Worker:
    """One use of one lock by one process."""

    def __init__(self, person: Person, number: int, spec: Spec, wait: float | None) -> None:
        self.person, self.number, self.spec, self.wait = person, number, spec, wait
        self.name, self.who = spec.name, person.name
        self.chronicle = person.simulation.chronicle
        self.owner = f"{person.name}{number}"
        self.hold: Hold | None = None
        self.entry: Entry | None = None
        self.element = f"{person.name}{number}"
        """What it adds to the resource: once only in a run."""

    async def run(self, seconds: float, writes: str, checks: bool = True) -> None:
        """Take the lock, use it, and give it back."""
        with owner(self.owner):
            if not await self.take():
                return
            try:
                if writes:
                    await self.update(seconds, writes == "fenced", checks)
                else:
                    await self.work(seconds)
            finally:
                await self.give_back()

    async def take(self) -> bool:
        """Whether it was granted."""
        person, spec, chronicle = self.person, self.spec, self.chronicle
        person.simulation.used.add((spec.kind, spec.name))
        chronicle.tell(self.who, "asks", f"asks for {self.shown()}", name=self.name)
        call = chronicle.begin(
            "acquire", self.who, owner=self.owner, name=spec.name, kind=spec.kind, mode=spec.mode, limit=spec.limit,
            subtree=spec.subtree,
        )  # fmt: skip
        try:
            if self.wait == 0:
                entry = await try_acquire(person.client, spec, [])
            else:
                entry = await acquire(person.client, spec, self.wait, [])
        except (HoldfastError, Cancelled) as error:
            chronicle.end(call, outcome_of(error), error=type(error).__name__)
            chronicle.tell(self.who, "refused", f"did not get {self.shown()}: {explain(error)}", name=self.name)
            return False
        if entry is None:
            chronicle.end(call, "failed", error="NotAcquired")
            chronicle.tell(self.who, "refused", f"did not get {self.shown()}: somebody has it", name=self.name)
            return False
        person.client.unsettled.hand_out(entry)
        self.entry, self.hold = entry, entry.held
        hold = self.hold
        queued = person.simulation.queued(hold.claim.id)
        chronicle.end(
            call, "ok", claim=hold.claim.id, token=hold.token, slot=hold.slot, deadline=self.deadline(), queued=queued
        )
        slot = "" if hold.slot is None else f", permit {hold.slot}"
        chronicle.tell(
            self.who, "granted", f"has {self.shown()}, token {hold.token}{slot}", name=self.name, token=hold.token
        )
        hold.when_lost(self.lost)
        return True

    def shown(self) -> str:
        """The lock as people call it."""
        what = {"lock": "the lock", "semaphore": "a permit of", "election": "the lead of"}[self.spec.kind]
        if self.spec.mode == "shared":
            what = "the read lock"
        return f"{what} {self.name!r}" + ("/…" if self.spec.subtree else "")

    def deadline(self) -> float:
        """Until when the grant calls itself valid, in the world's time."""
        assert self.hold is not None
        return self.person.machine.moment(self.hold.deadline)

    def lost(self) -> None:
        """The front says that the grant is lost."""
        assert self.hold is not None
        self.chronicle.moment(
            "lost", self.who, owner=self.owner, name=self.name, kind=self.spec.kind, claim=self.hold.claim.id,
            deadline=self.deadline(),
        )  # fmt: skip
        reason = self.hold.reason or "its deadline has passed"
        self.chronicle.tell(self.who, "lost", f"is told that it lost {self.shown()}: {reason}", name=self.name)

    def look(self) -> bool:
        """Whether the grant is valid by the holder's own clock; noted if it is."""
        assert self.hold is not None
        if not self.hold.valid:
            return False
        self.chronicle.moment(
            "check", self.who, owner=self.owner, name=self.name, kind=self.spec.kind, claim=self.hold.claim.id,
            deadline=self.deadline(),
        )  # fmt: skip
        return True

    async def work(self, seconds: float) -> bool:
        """Use what is held for a while, looking at the grant now and then; whether it was valid to the end."""
        looks = max(LOOKS, ceil(seconds / LOOKS_EVERY))
        for _ in range(looks):
            await self.person.sleep(seconds / looks)
            if not self.look():
                return False
        return True

    async def update(self, seconds: float, fenced: bool, checks: bool) -> None:
        """Read the resource, think, and write back what was read and one element more."""
        seen = await self.ask("read", fenced)
        if seen is None:
            return
        if checks:
            if not await self.work(seconds):
                self.chronicle.tell(self.who, "stops", "sees that its grant is over, and does not write")
                return
        else:
            await self.person.sleep(seconds)
        await self.ask("write", fenced, (*seen, self.element))

    async def ask(self, op: str, fenced: bool, value: tuple[str, ...] = ()) -> tuple[str, ...] | None:
        """Read or write the resource; None if that failed."""
        assert self.hold is not None
        chronicle, token = self.chronicle, self.hold.token
        facts: dict[str, Any] = {"name": self.name, "claim": self.hold.claim.id, "token": token, "fenced": fenced}
        if op == "write":
            facts["value"] = self.element
            chronicle.tell(self.who, "writes", f"writes {self.element!r} to {self.name!r}, token {token}")
        call = chronicle.begin(op, self.who, owner=self.owner, **facts)
        shown = token if fenced else None
        request = Read(self.name, shown) if op == "read" else Write(self.name, value, shown)
        try:
            reply = await self.person.resource.call(request, self.person.machine.now() + PATIENCE)
        except EngineUnavailable as error:
            chronicle.end(call, "unknown", error=type(error).__name__)
            chronicle.tell(self.who, "unknown", f"does not know what became of its {op}")
            return None
        if isinstance(reply, StaleToken):
            chronicle.end(call, "failed", error="StaleToken")
            text = f"is refused by {self.name!r}: token {token} is older than {reply.highest}"
            chronicle.tell(self.who, "stale", text, token=token, highest=reply.highest)
            return None
        if op == "read":
            chronicle.end(call, "ok", value=list(reply))
            chronicle.tell(self.who, "reads", f"reads {self.name!r}: {shown_list(reply)}")
            return tuple(reply)
        chronicle.end(call, "ok", version=reply.version)
        chronicle.tell(self.who, "written", f"has written {self.name!r}: {shown_list(value)}")
        return ()

    async def give_back(self) -> None:
        """Release, and write down what became of it."""
        assert self.hold is not None
        assert self.entry is not None
        chronicle = self.chronicle
        call = chronicle.begin(
            "release", self.who, owner=self.owner, name=self.name, kind=self.spec.kind, claim=self.hold.claim.id
        )
        try:
            await release(self.person.client, self.entry)
        except (LockLost, NotHeld, EngineUnavailable, Cancelled) as error:
            chronicle.end(call, outcome_of(error), error=type(error).__name__)
            chronicle.tell(self.who, "release failed", f"cannot give {self.shown()} back: {explain(error)}")
            return
        chronicle.end(call, "ok")
        chronicle.tell(self.who, "released", f"gives {self.shown()} back", name=self.name)


def explain(error: BaseException) -> str:
    """An error in a few words that do not depend on how long anything took."""
    match error:
        case LockLost() | NotHeld():
            return error.reason
        case EngineUnavailable():
            return f"{error.problem} (outcome: {error.outcome})"
        case Cancelled():
            return "it was cancelled"
        case _:
            return str(error)


def shown_list(value: tuple[str, ...]) -> str:
    """A list as people read it, its end if it is long."""
    if len(value) <= 6:
        return f"[{', '.join(value)}]"
    return f"[… {', '.join(value[-5:])}] ({len(value)})"


def spec_of(kind: str, name: str, mode: Any, limit: int | None, subtree: bool) -> Spec:
    """A spec for a simulated use."""
    return make_spec(kind, name, mode=mode, limit=limit or None, subtree=subtree)
