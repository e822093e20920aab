"""Notices that are signed, because any user of the server may publish to the channel that a client listens to."""

from __future__ import annotations

import logging
from collections.abc import Callable
from hmac import compare_digest
from secrets import token_bytes
from typing import Any

from holdfast.runtime import clock

log = logging.getLogger("holdfast")

COMPLAINS_EVERY = 10.0
"""How often, in seconds, messages that are no notices are logged."""


class SignedNotices:
    """Reads the notices that one client gets.

    A message is a text, a space, and the hash of secret, text and secret. Only the server sends the secret, as an
    answer, and never publishes it. A signed notice that is published again says nothing new: the same grant of the
    same claim.
    """

    def __init__(self, server: str, hashed: Callable[[bytes], Any]) -> None:
        self.secret = token_bytes()
        """Of no server, until there is one."""
        self._server, self._hashed = server, hashed
        self._complained = -COMPLAINS_EVERY

    def text(self, message: bytes) -> str | None:
        """The notice's text; None if the message is not signed with the secret, which is logged."""
        text, _, signature = message.rpartition(b" ")
        if compare_digest(self._hashed(self.secret + text + self.secret).hexdigest().encode(), signature):
            return text.decode()
        now = clock.now()
        if now - self._complained >= COMPLAINS_EVERY:
            self._complained = now
            log.warning("%s: ignored a message that Holdfast did not publish: %.200r", self._server, message)
        return None
