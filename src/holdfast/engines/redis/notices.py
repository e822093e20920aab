"""What Redis publishes to a session: signed, because any user of the server may publish to its channel."""

from __future__ import annotations

import logging
from hashlib import sha1
from hmac import compare_digest
from secrets import token_hex

from holdfast.core.table.commands import GRANTED, Notice
from holdfast.model import Granted
from holdfast.runtime import clock

log = logging.getLogger("holdfast")

COMPLAINS_EVERY = 10.0
"""How often, in seconds, messages that are no notices are logged."""


class Notices:
    """Reads the notices of one client's session.

    The scripts sign a notice with a secret that the session has in its hash. The secret itself is never published. A
    signed notice that is published again says nothing new: the same grant of the same claim.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._secret = b""
        self._complained = -COMPLAINS_EVERY

    def begin(self) -> str:
        """The secret for a new session."""
        secret = token_hex(16)
        self._secret = secret.encode()
        return secret

    def read(self, message: bytes) -> tuple[Notice, Granted | None] | None:
        """A notice, with the grant if all of it is there; None if the message is no notice of this session."""
        text, _, signature = message.rpartition(b" ")
        signed = sha1(self._secret + text + self._secret, usedforsecurity=False).hexdigest()
        if not compare_digest(signed.encode(), signature):
            self._complain(message)
            return None
        what, subject, *more = text.decode().split(" ")
        if what != GRANTED or more[2:] != ["0"]:
            # One that ends by itself is looked at, to know when.
            return Notice("", subject, what), None
        slot = int(more[1])
        return Notice("", subject, what), Granted(int(more[0]), None if slot < 0 else slot)

    def _complain(self, message: bytes) -> None:
        now = clock.now()
        if now - self._complained >= COMPLAINS_EVERY:
            self._complained = now
            log.warning("%s: ignored a message that Holdfast did not publish: %.200r", self._address, message)
