"""Who uses the store, and how far it got: a small file beside it.

The number of the last batch that was answered is written here after each commit, without a sync. It
survives a killed server, and it tells a store that has lost its end: a write-ahead log that was
deleted or damaged, an old copy put in its place. SQLite itself takes such a file without a word.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import NamedTuple

from holdfast.server.ballast import FULL

_LINE = b"%020d %08x\n"


class Seen(NamedTuple):
    """The last batch that was answered, and its checksum."""

    number: int
    sum: int


class Witness:
    """The file `<store>-witness`."""

    def __init__(self, path: Path) -> None:
        self.path = path.with_name(path.name + "-witness")
        self._file: int | None = None

    def read(self) -> Seen | None:
        """What it has seen; None if there is no such file, or nothing in it yet."""
        try:
            words = self.path.read_bytes().split()
        except FileNotFoundError:
            return None
        if len(words) != 2:
            return None
        return Seen(int(words[0]), int(words[1], 16))

    def open(self) -> None:
        """Make it, before the first `write`."""
        if self._file is None:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, seen: Seen) -> bool:
        """Remember that this batch is on disk. From now on a store that ends before it is not trusted.

        False if the disk is full. Then it lags behind, which is harmless: it never says more than is so.
        """
        assert self._file is not None
        try:
            os.pwrite(self._file, _LINE % seen, 0)
        except OSError as error:
            if error.errno not in FULL:
                raise
            return False
        return True

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


class SoleUse:
    """A lock on the store's own file: two servers never use one, by whatever path they reach it."""

    def __init__(self, path: Path) -> None:
        # SQLite's locks are of another kind and are lost when any descriptor of the file is closed: this one is
        # closed after SQLite's own.
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def take(self) -> bool:
        """Whether nobody else has it."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        os.close(self._file)
