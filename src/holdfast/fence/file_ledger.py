"""What the fence of a file remembers beside it: the highest token, and an append that is under way.

Two records in two sectors, written in turn: a power cut in the middle of one leaves the other.
Whoever holds the ledger holds a lock on it that ends with the process.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from zlib import crc32

from holdfast.errors import InvalidRequest
from holdfast.runtime.disk import sync, sync_folder

_SECTOR = 4096
_BODY = 16 + 1 + 20 + 1 + 20
_RECORD = _BODY + 1 + 8


@dataclass(frozen=True)
class Entry:
    """The highest token, and the length that the file had before an append that may not have ended."""

    token: int
    undo_to: int | None = None
    serial: int = 0

    @property
    def turn(self) -> int:
        """Which of the two sectors it is written to."""
        return self.serial % 2

    def encoded(self) -> bytes:
        """The record as it is written."""
        undo = "-" if self.undo_to is None else str(self.undo_to)
        body = f"{self.token:016d} {self.serial:020d} {undo:>20}".encode()
        return body + b" %08x" % crc32(body)


class Ledger:
    """The record of one file, locked against other processes while it is open.

    The lock is `flock`: a process that is stopped while it holds it stops the others, and lets no
    stale one pass. On a network file system it is only as good as that file system's locks.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1
        self.entry = Entry(0)

    def __enter__(self) -> Ledger:
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            self.entry = self._read()
            if self.entry.serial == 0:
                sync_folder(self._path.parent)
        except BaseException:
            os.close(self._file)
            raise
        return self

    def __exit__(self, _: object, __: object, ___: TracebackType | None) -> None:
        # A process that was forked meanwhile has the file open too: to close ours alone would not let go.
        fcntl.flock(self._file, fcntl.LOCK_UN)
        os.close(self._file)

    def write(self, token: int, undo_to: int | None = None) -> None:
        """Remember durably. What was remembered before stays readable until this is."""
        entry = Entry(token, undo_to, self.entry.serial + 1)
        os.pwrite(self._file, entry.encoded(), entry.turn * _SECTOR)
        sync(self._file)
        self.entry = entry

    def _read(self) -> Entry:
        """The record that was written last; an empty one at first use."""
        raw = [os.pread(self._file, _RECORD, turn * _SECTOR) for turn in (0, 1)]
        good = [entry for record in raw if (entry := _decoded(record)) is not None]
        if good:
            return max(good, key=lambda entry: entry.serial)
        if all(record.strip(b"\0") for record in raw):
            raise InvalidRequest(
                "path", str(self._path), "the fence's record is damaged: remove it only if no older holder can be alive"
            )
        return Entry(0)


def _decoded(record: bytes) -> Entry | None:
    """The entry in a record; None if it was never written, or not to its end."""
    body, check = record[:_BODY], record[_BODY:]
    if len(record) != _RECORD or check != b" %08x" % crc32(body):
        return None
    token, serial, undo = body.split()
    return Entry(int(token), None if undo == b"-" else int(undo), int(serial))
