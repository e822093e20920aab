"""Making a file durable: on the disk itself, not in the disk's cache."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)
"""What macOS needs instead of fsync, which leaves the data in the cache of the disk there."""
_UNKNOWN_THERE = frozenset({errno.ENOTSUP, errno.ENOTTY, errno.EINVAL})
"""What a file system says that has no such call: then fsync is the most there is."""


def sync(file: int) -> None:
    """Wait until all of an open file, or of an open folder, would survive a power cut."""
    if FULL_SYNC is not None:
        try:
            fcntl.fcntl(file, FULL_SYNC)
            return
        except OSError as error:
            if error.errno not in _UNKNOWN_THERE:
                raise
    os.fsync(file)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync(file)
    finally:
        os.close(file)
