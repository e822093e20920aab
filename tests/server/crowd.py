"""Clients that keep a lock server busy, and a ledger of every answer that they ever got."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import hiredis

from holdfast.engines.resp.wire import Part
from tests.servers.lock_server import LockServer, Wire

Ask = Callable[..., Any]

TTL_MS = 600_000
NAMES = 40
"""Few enough that clients meet."""
CELLS = 5


class Ledger:
    """What clients were told, and what they asked without an answer. One writer a client."""

    def __init__(self) -> None:
        self.sessions: dict[str, str] = {}
        """Session id and secret, of those that were answered as open."""
        self.held: dict[str, tuple[str, int]] = {}
        """Claims answered as granted: name and token."""
        self.released: set[str] = set()
        self.unsure: dict[str, str] = {}
        """Claims whose last request was not answered: they may be held or not."""
        self.tokens: dict[int, str] = {}
        """Every token ever answered, and whose it was."""
        self.cells: dict[str, int] = {}
        """The highest version answered."""
        self.highest_before = 0
        """The highest number that was answered before the last start."""
        self.answers = 0
        self.problems: list[str] = []

    def granted(self, claim: str, name: str, token: int) -> None:
        known = self.tokens.setdefault(token, claim)
        if known != claim:
            self.problems.append(f"token {token} was given to {known} and to {claim}")
        if token <= self.highest_before and claim not in self.held:
            self.problems.append(f"{claim} got token {token}, not above {self.highest_before} of before the restart")
        self.held[claim] = (name, token)

    def restarted(self) -> None:
        """All numbers from now on have to be above those before."""
        self.highest_before = max([0, *self.tokens, *self.cells.values()])


class Client(threading.Thread):
    """Takes and gives back, one request at a time, until the server is gone."""

    def __init__(self, server: LockServer, ledger: Ledger, number: int, generation: int) -> None:
        super().__init__(name=f"client-{number}")
        self.server, self.ledger = server, ledger
        self.random = Random(generation * 1_000 + number)
        self.session = f"client{number}at{generation}"
        self.secret = f"a secret of nobody else {number} {generation}".replace(" ", "_")
        self.count = 0
        self.mine: list[str] = []

    def run(self) -> None:
        try:
            with self.server.speak() as wire:
                self._work(lambda *parts: self._ask(wire, *parts))
        except (OSError, EOFError):
            return

    def _ask(self, wire: Wire, *parts: Part) -> Any:
        answer = wire(*parts)
        if isinstance(answer, hiredis.ReplyError):
            self.ledger.problems.append(f"{parts} was answered {answer}")
            raise EOFError(str(answer))
        return answer

    def _work(self, wire: Ask) -> None:
        if wire("HF.OPEN", self.session, self.secret, TTL_MS)[0] == "open":
            self.ledger.sessions[self.session] = self.secret
        while True:
            choice = self.random.random()
            if choice < 0.1:
                self._write(wire)
            elif choice < 0.3:
                self._several(wire)
            elif self.mine and (choice < 0.6 or len(self.mine) > 6):
                self._release(wire, self.mine.pop(self.random.randrange(len(self.mine))))
            else:
                self._acquire(wire)
            self.ledger.answers += 1

    def _several(self, wire: Ask) -> None:
        """Give back and take some in one request."""
        given = [self.mine.pop() for _ in range(self.random.randrange(len(self.mine) + 1))]
        taken = [self._choose() for _ in range(self.random.randint(1, 4))]
        for claim in given:
            self.ledger.unsure[claim] = self.ledger.held[claim][0]
        start = len(self.session) + 1
        lines = [f"-{claim[start:]}" for claim in given]
        lines += [f"?{claim[start:]}\t{name}\t{claim[start:]}\tthread" for claim, name in taken]
        answers = wire("HF.MANY", self.session, "holdfast.lock", "\n".join(lines))
        for claim, answer in zip(given, answers[: len(given)], strict=True):
            self._gave(claim, answer)
        for (claim, name), answer in zip(taken, answers[len(given) :], strict=True):
            self._took(claim, name, ["granted", answer] if isinstance(answer, int) else answer)

    def _acquire(self, wire: Ask) -> None:
        claim, name = self._choose()
        self._took(claim, name, wire("HF.ACQUIRE", claim, name, "WAIT", 0))

    def _choose(self) -> tuple[str, str]:
        """A new claim on some name, about to be sent."""
        self.count += 1
        claim, name = f"{self.session}-{self.count}", f"name-{self.random.randrange(NAMES)}"
        self.ledger.unsure[claim] = name
        return claim, name

    def _took(self, claim: str, name: str, answer: Any) -> None:
        if answer[0] == "granted":
            self.ledger.granted(claim, name, answer[1])
            self.mine.append(claim)
        del self.ledger.unsure[claim]

    def _release(self, wire: Ask, claim: str) -> None:
        self.ledger.unsure[claim] = self.ledger.held[claim][0]
        self._gave(claim, wire("HF.RELEASE", claim))

    def _gave(self, claim: str, answer: Any) -> None:
        if answer != "OK":
            self.ledger.problems.append(f"{claim} was held, and its release was answered {answer!r}")
        self.ledger.released.add(claim)
        del self.ledger.held[claim], self.ledger.unsure[claim]

    def _write(self, wire: Ask) -> None:
        name = f"cell-{self.random.randrange(CELLS)}"
        version = wire("HF.CELLSET", name, self.session)[1]
        self.ledger.cells[name] = max(self.ledger.cells.get(name, 0), version)


def busy(server: LockServer, ledger: Ledger, clients: int, generation: int) -> Iterator[Callable[[], bool]]:
    """Let clients work; gives a look at whether all of them have ended."""
    threads = [Client(server, ledger, number, generation) for number in range(clients)]
    for thread in threads:
        thread.start()
    yield lambda: not any(thread.is_alive() for thread in threads)
    for thread in threads:
        thread.join()


def compare(server: LockServer, ledger: Ledger) -> list[str]:
    """Ask the server for all that was ever answered; what it has lost, or has and should not."""
    problems, ledger.problems = ledger.problems, []
    holders: dict[str, str] = {}
    ledger.restarted()
    with server.speak() as wire:
        for session, secret in ledger.sessions.items():
            if wire("HF.RESUME", session, secret)[0] != "open":
                problems.append(f"session {session} was answered as open, and is gone")
                continue
            problems += _compare_claims(wire, ledger, session, holders)
        for name, version in ledger.cells.items():
            found: Any = wire("HF.CELLGET", name)
            if found[1] < version:
                problems.append(f"{name} was answered at version {version}, and is at {found[1]}")
    return problems


def _compare_claims(wire: Wire, ledger: Ledger, session: str, holders: dict[str, str]) -> Iterator[str]:
    def of_session(claims: Any) -> list[str]:
        return [claim for claim in claims if claim.startswith(f"{session}-")]

    def stands(claim: str) -> Any:
        answer = wire("HF.LOOK", claim)
        if answer[0] == "granted":
            name = (ledger.held.get(claim) or (ledger.unsure.get(claim), 0))[0]
            other = holders.setdefault(str(name), claim)
            if other != claim:
                ledger.problems.append(f"{name} is held by {other} and by {claim}")
        return answer

    for claim in of_session(ledger.unsure):
        answer = stands(claim)
        if answer[0] == "granted":
            ledger.granted(claim, ledger.unsure[claim], answer[1])
        else:
            ledger.held.pop(claim, None)
        del ledger.unsure[claim]
    for claim in of_session(ledger.held):
        answer, (name, token) = stands(claim), ledger.held[claim]
        if answer[:2] != ["granted", token]:
            yield f"{claim} was granted {name} with token {token}, and is {answer}"
    for claim in of_session(ledger.released):
        if stands(claim)[0] == "granted":
            yield f"{claim} was answered as released, and is held"
    # What was checked is let go, so that the next round has names to take.
    for claim in of_session(ledger.held):
        wire("HF.RELEASE", claim)
        del ledger.held[claim]
        ledger.released.add(claim)
