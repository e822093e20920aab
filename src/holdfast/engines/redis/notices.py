"""What Redis publishes to a session. The scripts sign it with a secret that the session has in its hash."""

from __future__ import annotations

from functools import partial
from hashlib import sha1
from secrets import token_hex

from holdfast.core.table.commands import GRANTED, Notice
from holdfast.engines.signed_notices import SignedNotices
from holdfast.model import Granted


class Notices:
    """Reads the notices of one client's session."""

    def __init__(self, address: str) -> None:
        self._signed = SignedNotices(address, partial(sha1, usedforsecurity=False))

    def begin(self) -> str:
        """The secret for a new session."""
        secret = token_hex(16)
        self._signed.secret = secret.encode()
        return secret

    def read(self, message: bytes) -> tuple[Notice, Granted | None] | None:
        """A notice, with the grant if all of it is there; None if the message is no notice of this session."""
        text = self._signed.text(message)
        if text is None:
            return None
        what, subject, *more = text.split(" ")
        if what != GRANTED or more[2:] != ["0"]:
            # One that ends by itself is looked at, to know when.
            return Notice("", subject, what), None
        slot = int(more[1])
        return Notice("", subject, what), Granted(int(more[0]), None if slot < 0 else slot)
