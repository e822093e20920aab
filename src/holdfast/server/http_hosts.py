"""Which names HTTP answers to. A page of another site, whose name leads to this server for a moment, is refused."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Any

from holdfast.errors import InvalidRequest


class Hosts:
    """`localhost`, addresses, this machine's own name, and the names that the configuration says."""

    def __init__(self, names: Iterable[str]) -> None:
        own = socket.gethostname()
        self._names = {plain_host(name) for name in ("localhost", own, own.partition(".")[0], *names)}

    def allow(self, host: str) -> bool:
        """Whether a request for this host is answered. Browsers always say one; what says none is no browser."""
        name = plain_host(host)
        return not name or name in self._names or is_address(name)


def plain_host(host: str) -> str:
    """The name or address in `name`, `name:port` or `[address]:port`."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".")


def is_address(name: str) -> bool:
    """Whether it is an address and no name, so that no name server can lead it elsewhere."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def parse_hosts(found: Any) -> tuple[str, ...]:
    """The setting `http_hosts`. InvalidRequest names what is wrong."""
    if not isinstance(found, list) or not all(isinstance(name, str) and plain_host(name) for name in found):
        raise InvalidRequest("http_hosts", found, "it is a list of names, as in a URL after //")
    return tuple(found)
