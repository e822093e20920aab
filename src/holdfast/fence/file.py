"""The fence of a file: it is replaced, or appended to, together with its token."""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from holdfast.errors import InvalidRequest, StaleToken
from holdfast.fence.file_ledger import Ledger
from holdfast.fence.token import Presented, Token, present
from holdfast.runtime.disk import sync, sync_folder

_LONGEST_NAME = 255
_ANY_FILE = "file"


class FileFence:
    """Refuses to write a file under a token lower than one that it was written under.

    The token is kept beside the file, in `.NAME.fence`: never delete that while a holder may be
    alive. A file with hard links is refused, because each name would have its own token. The path
    is the resource key, so give each permit of a semaphore a file of its own. A `folder` is needed
    for `check` alone, which remembers tokens of resources that are no files.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self._folder = None if folder is None else Path(folder)

    def __repr__(self) -> str:
        return "FileFence()" if self._folder is None else f"FileFence({str(self._folder)!r})"

    def write(self, path: str | os.PathLike[str], data: bytes | str, grant: Token, *, once: bool = False) -> None:
        """Replace the file's content, atomically and durably, or raise StaleToken.

        A reader sees the old content or the new one, after a power cut too. The token is durable
        before the content is: a cut in between leaves the old content, fenced by the new token.
        """
        place = _Place(path, grant, once)
        with Ledger(place.ledger) as ledger:
            place.admit(ledger)
            _finish_undo(place.path, ledger)
            _write_new(place.new, place.path, _bytes(data))
            place.remember(ledger)
            os.replace(place.new, place.path)
            sync_folder(place.path.parent)

    def read(self, path: str | os.PathLike[str], grant: Token) -> bytes | None:
        """The file's content, None if there is no file; or raise StaleToken.

        Nobody with a lower token can write any more once it is read: what is decided on it stays true.
        """
        place = _Place(path, grant, once=False)
        with Ledger(place.ledger) as ledger:
            place.admit(ledger)
            place.remember(ledger)
            _finish_undo(place.path, ledger)
            try:
                return place.path.read_bytes()
            except FileNotFoundError:
                return None

    def open(self, path: str | os.PathLike[str], grant: Token) -> FencedFile:
        """A file to append to; every append is checked, durable, and there as a whole or not at all."""
        return FencedFile(path, grant)

    def check(self, grant: Token, *, resource: str | None = None, once: bool = False) -> None:
        """Raise StaleToken if a higher token was seen for a resource; else remember this one."""
        if self._folder is None:
            raise InvalidRequest("folder", None, "say where tokens are kept: FileFence(folder)")
        presented = present(grant, resource, once=once)
        key = hashlib.sha256(presented.resource.encode()).hexdigest()
        with Ledger(self._folder / f"{key}.fence") as ledger:
            _admit(presented, presented.resource, ledger, once)
            _remember(presented, ledger)


class FencedFile:
    """A file that grows, under a grant that is checked at every append."""

    def __init__(self, path: str | os.PathLike[str], grant: Token) -> None:
        self._path, self._grant = path, grant
        place = _Place(path, grant, once=False)
        with Ledger(place.ledger) as ledger:
            place.admit(ledger)
            place.remember(ledger)
            self._file = os.open(place.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            _undo(self._file, ledger)
            sync_folder(place.path.parent)

    def write(self, data: bytes | str) -> None:
        """Append, durably and as a whole; StaleToken if a later holder has written since."""
        place = _Place(self._path, self._grant, once=False)
        with Ledger(place.ledger) as ledger:
            place.admit(ledger)
            self._follow(place.path)
            _undo(self._file, ledger)
            highest = place.highest(ledger)
            ledger.write(highest, undo_to=os.fstat(self._file).st_size)
            try:
                _write_all(self._file, _bytes(data))
                sync(self._file)
            except BaseException:
                # A full disk, or an interrupt: readers must not see half of it until somebody appends again.
                _undo(self._file, ledger)
                raise
            ledger.write(highest)

    def close(self) -> None:
        """Close the file. What was written is durable already."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> FencedFile:
        return self

    def __exit__(self, _: object, __: object, ___: TracebackType | None) -> None:
        self.close()

    def _follow(self, path: Path) -> None:
        """Open the file again if it was replaced since: what is appended must go to the one that readers see."""
        try:
            now = os.stat(path)
        except FileNotFoundError:
            now = None
        ours = os.fstat(self._file)
        if now is None or (now.st_dev, now.st_ino) != (ours.st_dev, ours.st_ino):
            again = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            os.close(self._file)
            self._file = again
            sync_folder(path.parent)


class _Place:
    """Where a file, its ledger and its next content are, and the token that is presented for it."""

    def __init__(self, path: str | os.PathLike[str], grant: Token, once: bool) -> None:
        # A file has one fence, whatever symbolic link it is reached by. Its path is its resource
        # key, so that a grant that covers many names needs to say no more.
        self.path = Path(os.path.realpath(os.fspath(path)))
        self._presented, self._once = present(grant, _ANY_FILE, once=once), once
        self.ledger = _beside(self.path, ".fence")
        self.new = _beside(self.path, ".fence-new")

    def admit(self, ledger: Ledger) -> None:
        """Refuse a stale token, and a file that has another name, under which it would have another fence."""
        with suppress(FileNotFoundError):
            found = os.stat(self.path)
            if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
                rule = f"the file has {found.st_nlink} names (hard links), and a fence knows one: remove the others"
                raise InvalidRequest("path", str(self.path), rule)
        _admit(self._presented, str(self.path), ledger, self._once)

    def remember(self, ledger: Ledger) -> None:
        _remember(self._presented, ledger)

    def highest(self, ledger: Ledger) -> int:
        return ledger.entry.token if self._presented.shared else self._presented.token


def _admit(presented: Presented, resource: str, ledger: Ledger, once: bool) -> None:
    highest = ledger.entry.token
    if presented.is_stale(highest, once=once):
        raise StaleToken(resource, presented.token, highest)


def _remember(presented: Presented, ledger: Ledger) -> None:
    if not presented.shared and presented.token > ledger.entry.token:
        ledger.write(presented.token, ledger.entry.undo_to)


def _undo(file: int, ledger: Ledger) -> None:
    """Cut off what an append left that did not come to its end."""
    undo_to = ledger.entry.undo_to
    if undo_to is None:
        return
    if os.fstat(file).st_size > undo_to:
        os.ftruncate(file, undo_to)
        sync(file)
    ledger.write(ledger.entry.token)


def _finish_undo(path: Path, ledger: Ledger) -> None:
    """The same, before the file is replaced: else what replaces it would be cut off later."""
    if ledger.entry.undo_to is not None:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            _undo(file, ledger)
        finally:
            os.close(file)


def _write_new(new: Path, old: Path, data: bytes) -> None:
    """The next content under a name of its own, durable, with the rights of what it replaces."""
    file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        with suppress(FileNotFoundError):
            os.fchmod(file, stat.S_IMODE(os.stat(old).st_mode))
        _write_all(file, data)
        sync(file)
    finally:
        os.close(file)


def _write_all(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def _beside(path: Path, suffix: str) -> Path:
    name = f".{path.name}{suffix}"
    if len(os.fsencode(name)) > _LONGEST_NAME:
        name = f".{hashlib.sha256(os.fsencode(path.name)).hexdigest()}{suffix}"
    return path.with_name(name)


def _bytes(data: bytes | str) -> bytes:
    return data.encode() if isinstance(data, str) else data
