"""Names of locks: what is allowed, and how a path covers another."""

from __future__ import annotations

import re
from zlib import crc32

from holdfast.errors import InvalidRequest

MAX_NAME_BYTES = 512
BUCKETS = 256

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_RULE = "a name has 1 to 512 bytes of UTF-8, no control characters, and no path segment that is empty, '.' or '..'"


def check_name(name: object, argument: str = "name") -> str:
    """Return `name` if it can name a lock; raise InvalidRequest otherwise."""
    if type(name) is not str:
        raise InvalidRequest(argument, name, "a name is a string")
    # The common case, decided without a regular expression or a split.
    if name.isalnum() and name.isascii() and len(name) <= MAX_NAME_BYTES:
        return name
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise InvalidRequest(argument, name, "a name has to be valid Unicode") from error
    if not 1 <= size <= MAX_NAME_BYTES or _CONTROL.search(name):
        raise InvalidRequest(argument, name, _RULE)
    if any(segment in ("", ".", "..") for segment in name.split("/")):
        raise InvalidRequest(argument, name, _RULE)
    return name


def fits(text: object, most: int) -> bool:
    """Whether this is text that every engine can keep, of at most so many bytes."""
    try:
        return isinstance(text, str) and len(text.encode()) <= most
    except UnicodeEncodeError:
        return False


def legible(text: str) -> str:
    """A text for people that came from outside, such as a file's name, with a mark for what is not Unicode in it."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def check_prefix(prefix: object) -> str:
    """Return `prefix` if names can start with it: empty, a name, or a name and a final slash."""
    if prefix == "":
        return ""
    if isinstance(prefix, str) and prefix.endswith("/"):
        return check_name(prefix[:-1], "prefix") + "/"
    return check_name(prefix, "prefix")


def ancestors(name: str) -> tuple[str, ...]:
    """The paths above `name`, nearest last: `a/b/c` gives `a`, `a/b`."""
    if "/" not in name:
        return ()
    found = []
    at = name.find("/")
    while at >= 0:
        found.append(name[:at])
        at = name.find("/", at + 1)
    return tuple(found)


def covers(path: str, name: str) -> bool:
    """Whether `name` is `path` or lies under it."""
    return name == path or name.startswith(path + "/")


def matches(prefix: str, name: str) -> bool:
    """Whether a listing or a watch of `prefix` shows `name`: `db/` is what lies under db, `db` that and db itself."""
    return not prefix or (name.startswith(prefix) if prefix.endswith("/") else covers(prefix, name))


def bucket(name: str) -> int:
    """Which of 256 counters serves `name`: the same for all names that can conflict."""
    return crc32(name.partition("/")[0].encode()) % BUCKETS
