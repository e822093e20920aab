"""From a request to the command that carries it out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from holdfast.errors import EngineUnavailable, InvalidRequest
from holdfast.server import (
    cell_commands,
    claim_commands,
    cluster_commands,
    many,
    people_commands,
    redis_commands,
    session_commands,
)
from holdfast.server.frames import Frame
from holdfast.server.logins import Logins
from holdfast.server.resp import OK, OVER, RESP2
from holdfast.server.service import STOPPING
from holdfast.server.session_commands import NoSession
from holdfast.server.wire_error import WireError

if TYPE_CHECKING:
    from holdfast.server.connection import Connection
    from holdfast.server.service import Service

log = logging.getLogger("holdfast.server")

Carry = Callable[["Connection", Frame], "bytes | None"]
"""Carries a request out: the reply, or None if it comes later."""

WITHOUT_SESSION = {
    **dict.fromkeys((b"HF.LEAVE", b"HF.CLOSE", b"HF.UNWATCH"), OK),
    **dict.fromkeys((b"HF.RELEASE", b"HF.HANDOVER"), RESP2.encode(["gone", "its session ran out"])),
}
"""What a command answers whose session is no more, where that is not *over*."""
FOLLOWING = (b"HF.HELLO", b"HF.CLUSTER")
"""What a server answers that does not lead."""
BEFORE_LOGIN = (b"AUTH", b"HELLO", b"QUIT", b"RESET")


class Commands:
    """Every command of the server."""

    def __init__(self, logins: Logins) -> None:
        self.logins = logins
        self.all: Mapping[bytes, Carry] = {
            **session_commands.COMMANDS,
            **claim_commands.COMMANDS,
            **many.COMMANDS,
            **people_commands.COMMANDS,
            **cell_commands.COMMANDS,
            **cluster_commands.COMMANDS,
            **redis_commands.COMMANDS,
            b"AUTH": logins.auth,
            b"HELLO": logins.hello,
        }
        self.before_login = {name: self.all[name] for name in BEFORE_LOGIN}
        self.following = {name: carry for name, carry in self.all.items() if name in FOLLOWING or b"." not in name}

    def open(self, service: Service) -> Mapping[bytes, Carry]:
        """What whoever has logged in may use: a follower knows nothing of locks, and one that stops does nothing."""
        if service.stopping:
            return {}
        return self.all if service.elsewhere is None else self.following

    def greet(self, connection: Connection, tls: Any) -> None:
        """A new connection: a certificate may say who it is."""
        if tls is None:
            return
        try:
            self.logins.by_certificate(connection, tls)
        except WireError as refused:
            connection.turn_away(refused)

    def carry_out(self, connection: Connection, frame: Frame) -> bytes | None:
        """The reply to a request, or None if it comes later. Never raises."""
        service = connection.service
        service.tally.commands += 1
        word = frame[0]
        try:
            carry = connection.allowed.get(word)
            if carry is None:
                carry = self._find(connection, word)
            return carry(connection, frame)
        except WireError as error:
            return connection.error(error)
        except NoSession:
            return WITHOUT_SESSION.get(word.upper(), OVER)
        except UnicodeDecodeError:
            return connection.error(WireError("HFINVALID", "text has to be UTF-8"))
        except InvalidRequest as error:
            return connection.error(WireError("HFINVALID", str(error)))
        except EngineUnavailable as error:
            return connection.error(WireError("ERR", error.problem))
        except Exception:
            # A mistake in this server must not become everybody's trouble: one request failed, the rest goes on.
            log.exception("a request failed", extra={"command": word[:40].decode(errors="replace")})
            return connection.error(WireError("ERR", "internal error, see the server's log"))

    def _find(self, connection: Connection, word: bytes) -> Carry:
        """The command of this name in any case, or why it cannot be used."""
        name = word.upper()
        carry = connection.allowed.get(name)
        if carry is not None:
            return carry
        if name in self.all:
            service = connection.service
            if service.stopping:
                raise STOPPING
            if service.elsewhere is not None and connection.allowed is self.following:
                raise service.elsewhere
            raise WireError("NOAUTH", "Authentication required.")
        shown = word[:60].decode(errors="replace")
        raise WireError("ERR", f"unknown command '{shown}', see docs/wire.md")
