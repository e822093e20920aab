"""Room kept in reserve: given back when the disk is full, so that locks can still be released."""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger("holdfast.server")

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
NO_FILE = frozenset({errno.EMFILE, errno.ENFILE})
"""So many files are open that there is none to look with."""
LEAST = 1 << 20
"""How much room there has to be, in bytes, before a disk counts as no longer full."""
ZEROS = bytes(1 << 20)
EVERY = 1.0
"""How often it looks whether there is room again, in seconds."""


class Ballast:
    """The file `<store>-ballast`."""

    def __init__(self, path: Path, size: int, now: Callable[[], float]) -> None:
        self.path, self.size, self.now = path.with_name(path.name + "-ballast"), size, now
        self.short_of_room = False
        self._looked_at = 0.0
        self._turn = threading.Lock()
        """The store's thread gives it while the loop may be about to take it again."""

    def take(self) -> None:
        """Reserve the room, if there is twice as much: what is just enough would be gone with the next batch."""
        with self._turn:
            self._take()

    def _take(self) -> None:
        self._looked_at = self.now()
        try:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                if self.short_of_room:
                    reserve(file, max(2 * self.size, LEAST))
                    os.ftruncate(file, self.size)
                elif self.size:
                    reserve(file, self.size)
            finally:
                os.close(file)
        except OSError as error:
            if error.errno in NO_FILE and self.short_of_room:
                return  # nobody can tell now whether there is room
            if error.errno not in FULL:
                raise
            self._give()
        else:
            if self.short_of_room:
                log.info("there is room on the disk again", extra={"ballast": str(self.path)})
            self.short_of_room = False

    def give(self) -> None:
        """Give the room back: there is no other left."""
        with self._turn:
            self._give()

    def _give(self) -> None:
        if not self.short_of_room:
            log.warning("the disk is full: only what frees room is taken", extra={"ballast": str(self.path)})
        self.short_of_room = True
        self.path.unlink(missing_ok=True)

    def has_room(self) -> bool:
        """Whether nothing is amiss; looks again, now and then, while something is."""
        if self.short_of_room and self.now() >= self._looked_at + EVERY:
            self.take()
        return not self.short_of_room


def reserve(file: int, size: int) -> None:
    """Take so much room on the disk for a file. macOS has no call for that: zeros are written there."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)
        return
    for at in range(os.fstat(file).st_size, size, len(ZEROS)):
        os.pwrite(file, ZEROS[: size - at], at)
