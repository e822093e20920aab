"""The story of the split brain: A is stopped past its ttl, B takes the lock and writes, A wakes and writes too.

Told twice: with the fence, A's late write is refused; without it, B's update is lost. Any other
ending raises StoryFailed.
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holdfast.demo.process import Process, StoryFailed
from holdfast.demo.worker import LOCK
from holdfast.fence import SqlFence

TTL = 2.0
START, BY_A, BY_B = 100, 10, 50
_WAIT = 8.0
_STOPS = 20


@dataclass(frozen=True)
class Event:
    """One line of the timeline. `at` is in seconds since the story began; `who` is "" for the teller."""

    story: str
    at: float
    who: str
    event: str
    text: str
    token: int | None = None
    balance: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """The event without what it does not have."""
        return {key: value for key, value in asdict(self).items() if value is not None}


Tell = Callable[[Event], None]


class Story:
    """One telling, fenced or not, in a folder of its own."""

    def __init__(self, folder: Path, fenced: bool, tell: Tell) -> None:
        self._name = "fenced" if fenced else "unfenced"
        self._fenced, self._tell, self._began = fenced, tell, time.monotonic()
        self._locks, self._database = folder / "locks.db", folder / "bank.db"

    def run(self) -> None:
        """Tell it to its end."""
        self._open_account()
        with ExitStack() as stack:
            a, b = self._start("A", stack), self._start("B", stack)
            self._began = time.monotonic()
            first = self._a_is_stopped(a)
            second = self._b_takes_over(b, first)
            self._a_wakes(a, first, second)
            if self._fenced:
                self._a_tries_again(a)

    def _open_account(self) -> None:
        with closing(sqlite3.connect(self._database)) as bank, bank:
            bank.execute("CREATE TABLE account (balance INTEGER NOT NULL)")
            bank.execute("INSERT INTO account VALUES (?)", (START,))
            SqlFence().create(bank)

    def _start(self, who: str, stack: ExitStack) -> Process:
        process = Process(who, f"sqlite:///{self._locks}", str(self._database), str(TTL), self._name)
        stack.callback(process.end)
        process.answer("ready", 10.0)
        return process

    def _a_is_stopped(self, a: Process) -> int:
        token: int = a.ask("granted", "take", _WAIT)["token"]
        self._say("A", "granted", f"takes the lock, with token {token}", token=token)
        read = a.ask("read", "read")["balance"]
        self._say("A", "read", f"reads the balance, {read}, and is going to write {read + BY_A}", balance=read)
        self._stop(a)
        self._say("A", "stopped", "is stopped (SIGSTOP) before its write is out: no heartbeats any more")
        return token

    def _b_takes_over(self, b: Process, first: int) -> int:
        b.tell("take", _WAIT)
        self._say("B", "queued", f"stands in line; A's time to live is {TTL:g} s")
        token: int = b.answer("granted", _WAIT + 2.0)["token"]
        self._must(token > first, f"B's token {token} is not higher than A's {first}")
        self._say("B", "granted", f"takes the lock, with the higher token {token}: A's time was over", token=token)
        read = b.ask("read", "read")["balance"]
        written = b.ask("written", "write", BY_B)["balance"]
        self._say("B", "written", f"reads {read} and writes {written}", token=token, balance=written)
        self._must(self._balance() == START + BY_B, f"the balance is {self._balance()} after B's write")
        b.ask("released", "release")
        self._say("B", "released", "gives the lock back")
        return token

    def _a_wakes(self, a: Process, first: int, second: int) -> None:
        a.wake()
        self._say("A", "woken", "wakes (SIGCONT) and goes on where it was: its write goes out")
        if not self._fenced:
            written = a.ask("written", "write", BY_A)["balance"]
            self._must(self._balance() == START + BY_A, f"the balance is {self._balance()}, B's update is still there")
            text = f"writes {written}, and nothing stops it: B's {BY_B} are gone"
            self._say("A", "overwrote", text, token=first, balance=written)
            return
        refused = a.ask("refused", "write", BY_A)
        self._must(
            (refused["token"], refused["highest"]) == (first, second), f"the fence compared other tokens: {refused}"
        )
        self._must(self._balance() == START + BY_B, f"the balance is {self._balance()} after the refused write")
        self._say("A", "refused", f"is REFUSED by the database: it has seen {second}, A came with {first}", token=first)
        a.ask("lost", "release")
        self._say("A", "lost", "learns from its own client that the lock was lost, too late to matter", token=first)

    def _a_tries_again(self, a: Process) -> None:
        token = a.ask("granted", "take", _WAIT)["token"]
        read = a.ask("read", "read")["balance"]
        written = a.ask("written", "write", BY_A)["balance"]
        text = f"takes the lock again (token {token}), reads {read}, writes {written}: nobody's update is lost"
        self._say("A", "written", text, token=token, balance=written)
        self._must(self._balance() == START + BY_A + BY_B, f"the balance is {self._balance()} in the end")

    def _stop(self, process: Process) -> None:
        """Stop a process between its transactions: one that is stopped inside one stops everybody, not only itself."""
        for _ in range(_STOPS):
            process.stop()
            if self._can_write():
                return
            process.wake()
        raise StoryFailed(f"A was in the middle of a transaction each of the {_STOPS} times that it was stopped")

    def _can_write(self) -> bool:
        with closing(sqlite3.connect(self._locks, timeout=0.2, isolation_level=None)) as locks:
            try:
                locks.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
            locks.execute("ROLLBACK")
            return True

    def _balance(self) -> int:
        with closing(sqlite3.connect(self._database)) as bank:
            return int(bank.execute("SELECT balance FROM account").fetchone()[0])

    def _must(self, truth: bool, otherwise: str) -> None:
        if not truth:
            raise StoryFailed(otherwise)

    def _say(self, who: str, event: str, text: str, *, token: int | None = None, balance: int | None = None) -> None:
        at = round(time.monotonic() - self._began, 3)
        self._tell(Event(self._name, at, who, event, text, token, balance))


def tell_story(fenced: bool, tell: Tell) -> None:
    """Run the story once, on a temporary database and the embedded engine. StoryFailed if it ends otherwise."""
    with tempfile.TemporaryDirectory(prefix=f"holdfast-demo-{LOCK}-") as folder:
        Story(Path(folder), fenced, tell).run()
