"""The claims of one client on one name: which of them ask the engine, and which wait for their turn in the client.

Thousands of claims of one client on one name would each cost the engine a request, a poll or a
connection while they wait. So only the first ones are sent. The others wait behind them here, in
the order in which they came, and leave without a request.
"""

from __future__ import annotations

from collections import OrderedDict

from holdfast.runtime.calls import new_lock


class NameTurns:
    """The turns on one name. The user of this class locks it.

    An interrupt may come between any two lines. So `end` may be repeated, and names a claim that was
    called again until that claim has come for its turn.
    """

    __slots__ = ("_sent", "_waiting")

    def __init__(self) -> None:
        self._sent: dict[str, bool] = {}
        """Claims that have a turn, and whether each has come for it."""
        self._waiting: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sent) + len(self._waiting)

    def __contains__(self, claim_id: str) -> bool:
        return claim_id in self._sent or claim_id in self._waiting

    def place(self, claim_id: str) -> int:
        """The position of a claim among those of its client, from 1."""
        if claim_id in self._sent:
            return 1
        if next(reversed(self._waiting)) == claim_id:
            return len(self)
        return len(self._sent) + list(self._waiting).index(claim_id) + 1

    def waiting(self) -> str | None:
        """The first claim that waits for its turn."""
        return next(iter(self._waiting), None)

    def sent(self) -> str | None:
        """The first claim that has a turn."""
        return next(iter(self._sent), None)

    def admit(self, claim_id: str, most: int) -> bool:
        """Whether a claim has a turn now, if at most so many have one. If not, it waits and is called."""
        if claim_id not in self._sent:
            self._waiting.setdefault(claim_id)
            if len(self._sent) >= most or self.waiting() != claim_id:
                return False
        self.take(claim_id)
        return True

    def take(self, claim_id: str) -> None:
        """Give a claim a turn, whichever claims have or await one."""
        self._sent[claim_id] = True
        self._waiting.pop(claim_id, None)

    def end(self, claim_id: str, most: int) -> list[str]:
        """A claim needs no turn any more. Returns the claims whose turn has come, to be woken."""
        self._sent.pop(claim_id, None)
        self._waiting.pop(claim_id, None)
        while len(self._sent) < most and (called := self.waiting()) is not None:
            self._sent.setdefault(called, False)
            self._waiting.pop(called, None)
        return [called for called, came in self._sent.items() if not came]

    def replace(self, former: str, claim_id: str) -> None:
        """Another claim gets the turn of a former one."""
        if former in self._sent and claim_id not in self:
            self._sent[claim_id] = True
            self._sent.pop(former, None)

    def all(self) -> list[str]:
        """Every claim, in order."""
        return [*self._sent, *self._waiting]


class ClaimTurns:
    """The turns on every name. Everything may be called in any thread."""

    def __init__(self) -> None:
        self._lock = new_lock()
        self._names: dict[str, NameTurns] = {}

    def admit(self, name: str, claim_id: str, most: int = 1) -> bool:
        """Whether a claim has its turn now, if at most so many on its name have one. If not, it waits and is called."""
        with self._lock:
            return self._names.setdefault(name, NameTurns()).admit(claim_id, most)

    def take(self, name: str, claim_id: str) -> None:
        """Give a claim a turn, whichever claims have or await one."""
        with self._lock:
            self._names.setdefault(name, NameTurns()).take(claim_id)

    def end(self, name: str, claim_id: str) -> list[str]:
        """A claim needs no turn any more. Returns the claims whose turn has come, to be woken."""
        with self._lock:
            turns = self._names.get(name)
            if turns is None:
                return []
            called = turns.end(claim_id, 1)
            if not turns:
                del self._names[name]
            return called

    def replace(self, name: str, former: str, claim_id: str) -> None:
        """Another claim gets the turn of a former one."""
        with self._lock:
            if name in self._names:
                self._names[name].replace(former, claim_id)

    def end_all(self) -> list[str]:
        """No claim has a turn any more. Returns all of them, to be woken."""
        with self._lock:
            ended = [claim_id for turns in self._names.values() for claim_id in turns.all()]
            self._names.clear()
            return ended

    def knows(self, name: str, claim_id: str) -> bool:
        """Whether a claim has its turn or waits for it."""
        with self._lock:
            return name in self._names and claim_id in self._names[name]

    def place(self, name: str, claim_id: str) -> int:
        """The position of a claim among those of its client, from 1."""
        with self._lock:
            return self._names[name].place(claim_id) if self.knows(name, claim_id) else 1

    def waiting(self, name: str) -> str | None:
        """The first claim that waits for its turn."""
        with self._lock:
            return self._names[name].waiting() if name in self._names else None

    def sent(self, name: str) -> str | None:
        """The first claim that has its turn."""
        with self._lock:
            return self._names[name].sent() if name in self._names else None

    def count(self, name: str) -> int:
        """How many claims have their turn or wait for it."""
        with self._lock:
            return len(self._names[name]) if name in self._names else 0
