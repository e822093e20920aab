"""filelock: one file a name. It has no lease, no line and no token; a waiter polls."""

from __future__ import annotations

from pathlib import Path

from filelock import AsyncFileLock, FileLock

from holdfast.bench.subject import Where


class FilelockConnection:
    """The folder that holds the files."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def taker(self, name: str) -> FileLock:
        # Every caller has its own object: one object that is shared is re-entered, not waited for.
        return FileLock(self._folder / f"{name}.lock")

    def requests(self) -> None:
        return None

    def close(self) -> None:
        """Nothing is open."""


class FilelockTaskConnection:
    """The same for tasks."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def taker(self, name: str) -> AsyncFileLock:
        return AsyncFileLock(self._folder / f"{name}.lock")

    async def close(self) -> None:
        """Nothing is open."""


class Filelock:
    """filelock in a folder."""

    name = "filelock"
    has_tasks = True
    spans_processes = True
    schemes: tuple[str, ...] = ()

    def __init__(self, where: Where) -> None:
        self.where = where

    def connect(self) -> FilelockConnection:
        return FilelockConnection(self.where.folder)

    async def connect_tasks(self) -> FilelockTaskConnection:
        return FilelockTaskConnection(self.where.folder)
