"""One of the two processes of the story: does what it is told on stdin, a word a line, and says what came of it.

python -m holdfast.demo.worker LOCKS_URL DATABASE TTL fenced|unfenced
"""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from typing import Any

import holdfast
from holdfast.errors import LockLost, StaleToken
from holdfast.fence import SqlFence

LOCK = "account"


class Worker:
    """Adds an amount to an account, under a lock: read, think, write."""

    def __init__(self, locks: holdfast.Client, database: sqlite3.Connection, fenced: bool) -> None:
        self._locks, self._database, self._fenced = locks, database, fenced
        self._grant: holdfast.Grant | None = None
        self._token = self._balance = 0

    def take(self, wait: str) -> dict[str, Any]:
        """Stand in line for the lock."""
        self._grant = self._locks.lock(LOCK).acquire(wait=float(wait))
        self._token = self._grant.token
        return {"event": "granted", "token": self._token}

    def read(self) -> dict[str, Any]:
        """Read the balance, still being sure of the lock."""
        assert self._grant is not None
        self._grant.check()
        (self._balance,) = self._database.execute("SELECT balance FROM account").fetchone()
        return {"event": "read", "balance": self._balance}

    def write(self, amount: str) -> dict[str, Any]:
        """Write what was read, and the amount.

        It does not look at the grant any more: a pause can always come after the last look, and
        this write is the one that was already under way.
        """
        balance = self._balance + int(amount)
        try:
            with self._database:
                if self._fenced:
                    SqlFence().check(self._database, self._token, resource=LOCK)
                self._database.execute("UPDATE account SET balance = ?", (balance,))
        except StaleToken as stale:
            return {"event": "refused", "token": stale.presented, "highest": stale.highest, "message": str(stale)}
        return {"event": "written", "token": self._token, "balance": balance}

    def release(self) -> dict[str, Any]:
        """Give the lock back, if it is still ours."""
        assert self._grant is not None
        try:
            self._grant.release()
        except LockLost as lost:
            return {"event": "lost", "token": lost.token, "reason": lost.reason}
        return {"event": "released", "token": self._token}


def main(url: str, database: str, ttl: str, fencing: str) -> None:
    """Serve until stdin ends."""
    with closing(sqlite3.connect(database)) as bank, holdfast.connect(url, ttl=float(ttl), app="demo") as locks:
        worker = Worker(locks, bank, fencing == "fenced")
        print(json.dumps({"event": "ready"}), flush=True)
        for line in sys.stdin:
            verb, *arguments = line.split()
            print(json.dumps(getattr(worker, verb)(*arguments)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
