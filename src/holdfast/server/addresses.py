"""Where the server listens."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

from holdfast.errors import InvalidRequest

DEFAULT_PORT = 7420


class Address(NamedTuple):
    """A host and a port to listen on."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def local(self) -> bool:
        """Whether only this machine can reach it. A name other than localhost may be anything."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def parse(text: object, argument: str = "listen") -> Address:
    """`127.0.0.1:7420`, `[::1]:7420`, `host`, or `:7420` for the loopback address."""
    rule = "an address looks like 127.0.0.1:7420, [::1]:7420, :7420 or 0.0.0.0"
    # A number alone is meant as a port, and would be a host.
    if not isinstance(text, str) or not text or text.strip() != text or text.isdigit():
        raise InvalidRequest(argument, text, rule)
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise InvalidRequest(argument, text, rule)
        port = rest[1:]
    elif text.count(":") > 1:
        host, port = text, ""
    else:
        host, _, port = text.partition(":")
    if port and (not (port.isascii() and port.isdigit()) or int(port) > 65535):
        raise InvalidRequest(argument, text, rule)
    return Address(host or "127.0.0.1", int(port) if port else DEFAULT_PORT)
