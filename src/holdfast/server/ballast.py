"""Room kept in reserve: given back when the disk is full, so that locks can still be released."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
EVERY = 1.0
"""How often it looks whether there is room again, in seconds."""


class Ballast:
    """The file `<store>-ballast`."""

    def __init__(self, path: Path, size: int, now: Callable[[], float]) -> None:
        self.path, self.size, self.now = path.with_name(path.name + "-ballast"), size, now
        self.short_of_room = False
        self._looked_at = 0.0

    def take(self) -> None:
        """Reserve the room, if there is twice as much: what is just enough would be gone with the next batch."""
        self._looked_at = self.now()
        try:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                if self.short_of_room:
                    os.posix_fallocate(file, 0, 2 * self.size)
                    os.ftruncate(file, self.size)
                elif self.size:
                    os.posix_fallocate(file, 0, self.size)
            finally:
                os.close(file)
        except OSError as error:
            if error.errno not in FULL:
                raise
            self.give()
        else:
            self.short_of_room = False

    def give(self) -> None:
        """Give the room back: there is no other left."""
        self.short_of_room = True
        self.path.unlink(missing_ok=True)

    def has_room(self) -> bool:
        """Whether nothing is amiss; looks again, now and then, while something is."""
        if self.short_of_room and self.now() >= self._looked_at + EVERY:
            self.take()
        return not self.short_of_room
