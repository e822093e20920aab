"""What the locks protect: a set in a database of its own, written back as a whole, behind a fence if asked for."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Self

from holdfast.fence import SqlFence

PATIENCE = 60.0
"""A process that is stopped inside a transaction keeps the others waiting, not failing."""


class Resource:
    """One connection to the set. The fence's check is part of the transaction that reads or writes."""

    def __init__(self, folder: str, name: str) -> None:
        self._path = Path(folder) / f"{name}.db"
        self._fence = SqlFence()
        self._database = sqlite3.connect(self._path, timeout=PATIENCE, isolation_level=None)
        # No power cut is part of this test, and every write is a transaction.
        self._database.execute("PRAGMA synchronous = OFF")

    def create(self) -> None:
        """Make the tables, and close."""
        with self:
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("CREATE TABLE sets (name TEXT PRIMARY KEY, elements TEXT, version INTEGER)")
            self._database.execute("BEGIN")
            self._fence.create(self._database)
            self._database.execute("COMMIT")

    def read(self, name: str, token: int | None) -> list[str]:
        """All elements; StaleToken if the fence has seen a higher token. It remembers this one."""
        return self._in_one_step(name, token, None)[0]

    def write(self, name: str, elements: list[str], token: int | None) -> int:
        """Replace the set; the number of this write."""
        return self._in_one_step(name, token, elements)[1]

    def _in_one_step(self, name: str, token: int | None, elements: list[str] | None) -> tuple[list[str], int]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            if token is not None:
                self._fence.check(self._database, token, resource=name)
            row = self._database.execute("SELECT elements, version FROM sets WHERE name = ?", (name,)).fetchone()
            found, version = (json.loads(row[0]), int(row[1])) if row else ([], 0)
            if elements is not None:
                found, version = elements, version + 1
                told = (name, json.dumps(found), version)
                self._database.execute("INSERT OR REPLACE INTO sets VALUES (?, ?, ?)", told)
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")
        return found, version

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()
