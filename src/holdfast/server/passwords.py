"""Passwords, kept as scrypt digests, and checked off the loop."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections import OrderedDict
from functools import cache

COST, BLOCK, PARALLEL = 1 << 14, 8, 1
"""16 MiB and some 50 ms a check."""
MOST_REMEMBERED = 1_000

_FORM = re.compile(r"scrypt\$(\d{1,7})\$(\d{1,2})\$(\d{1,2})\$([A-Za-z0-9+/=]+)\$([A-Za-z0-9+/=]+)")


def protect(password: str, cost: int = COST) -> str:
    """What a configuration keeps of a password."""
    salt = secrets.token_bytes(16)
    digest = _scrypt(password.encode(), salt, cost, BLOCK, PARALLEL, 32)
    return f"scrypt${cost}${BLOCK}${PARALLEL}${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"


def well_formed(protected: str) -> bool:
    """Whether it is something that `protect` may have written."""
    found = _FORM.fullmatch(protected)
    if found is None or int(found[1]) > 1 << 20:
        return False
    try:
        salt, digest = (base64.b64decode(part) for part in found.groups()[3:])
    except ValueError:
        return False
    return bool(salt) and _possible(int(found[1]), int(found[2]), int(found[3]), len(digest))


@cache
def _possible(cost: int, block: int, parallel: int, length: int) -> bool:
    """Whether there is such a digest; tried once, because it takes as long as a check."""
    try:
        _scrypt(b"", b"salt", cost, block, parallel, length)
    except (ValueError, OverflowError, MemoryError):
        return False
    return True


def fits(password: bytes, protected: str) -> bool:
    """Whether this is the password. Takes its time, and always the same."""
    found = _FORM.fullmatch(protected)
    assert found is not None
    cost, block, parallel = (int(number) for number in found.groups()[:3])
    salt, digest = (base64.b64decode(part) for part in found.groups()[3:])
    return hmac.compare_digest(_scrypt(password, salt, cost, block, parallel, len(digest)), digest)


def _scrypt(password: bytes, salt: bytes, cost: int, block: int, parallel: int, length: int) -> bytes:
    most = 256 * cost * block * max(1, parallel)
    return hashlib.scrypt(password, salt=salt, n=cost, r=block, p=parallel, maxmem=most, dklen=length)


@cache
def decoy() -> str:
    """What is checked for users that do not exist, so that they take as long as others."""
    return protect(secrets.token_hex(8))


class Remembered:
    """Passwords that were checked a while ago, so that a client that reconnects does not cost 50 ms each time.

    Keeps keyed digests only; a new process has another key.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._known: OrderedDict[bytes, None] = OrderedDict()

    def _mark(self, password: bytes, protected: str) -> bytes:
        return hmac.digest(self._key, protected.encode() + b"\0" + password, "sha256")

    def knows(self, password: bytes, protected: str) -> bool:
        return self._mark(password, protected) in self._known

    def add(self, password: bytes, protected: str) -> None:
        self._known[self._mark(password, protected)] = None
        if len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)
