"""Where the lock server is, how to log in there, and whether it is what the URL promises."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from typing import Any

from hiredis import ReplyError

from holdfast.core.urls import Url
from holdfast.engines.holdfast.words import told
from holdfast.engines.redis.route import find_tls
from holdfast.engines.resp.wire import Address, Lost, parse_address
from holdfast.errors import InvalidRequest

PORT = 7420
PROTO = 1
_LEADER = re.compile(r"(\[[0-9A-Fa-f:]+\]|[^:\s]+):\d{1,5}")
OPTIONS = frozenset({"ca", "cert", "key", "verify", "tls", "durable"})


class TurnedAway(Lost):
    """The server does not want us, or is not what the URL promises: there is no use in trying again."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem, sent=False)


@dataclass
class Route:
    """The servers, the one that leads first. Shared by threads: what it remembers is replaced, never changed."""

    addresses: tuple[Address, ...]
    user: str = ""
    password: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = None
    durable: bool = True
    """Whether the server has to keep on disk what it answers."""

    def __post_init__(self) -> None:
        self._named = self.addresses
        """Those of the URL. What a server tells is asked first, and forgotten when another one is told."""
        self.replicated = len(self._named) > 1
        """Several servers are one only if they share their state."""

    def moved(self, address: Address) -> None:
        """That one leads: it is asked first from now on."""
        self.addresses = (address, *(other for other in self._named if other != address))

    def failed(self, address: Address) -> None:
        """Ask the others first."""
        if len(self.addresses) > 1 and self.addresses[0] == address:
            self.addresses = (*self.addresses[1:], address)

    def greetings(self) -> list[bytes]:
        """What a new connection says first."""
        login = ("AUTH", self.user or "default", self.password) if self.password else ()
        return [told("HELLO", 3, *login), told("HF.HELLO", f"proto={PROTO}")]

    def follow(self, address: Address, error: ReplyError) -> bool:
        """Whether an error says that another server, or this one later, is to be asked: then it is remembered."""
        word, _, rest = str(error).partition(" ")
        if word not in ("NOTLEADER", "HFSTOPPING", "HFLIMIT"):
            return False
        leader = _LEADER.fullmatch(rest.split()[0]) if word == "NOTLEADER" and rest else None
        if leader:
            self.moved(parse_address(leader[0], PORT))
        elif word != "HFLIMIT":
            self.failed(address)
        return True

    def check(self, address: Address, replies: list[Any]) -> None:
        """Raise unless these answers to the greetings are those of a server that we can use."""
        for reply in replies:
            if isinstance(reply, ReplyError):
                if str(reply).startswith("NOAUTH ") and not self.password:
                    raise TurnedAway("the server asks for a login: holdfast://user:password@host, or a certificate")
                if str(reply).startswith("ERR unknown command"):
                    raise TurnedAway("what answers there is no lock server; the URL of a Redis begins with redis://")
                raise Lost(str(reply), sent=False) if self.follow(address, reply) else TurnedAway(str(reply))
        server = replies[-1]
        if self.durable and not server[b"durable"]:
            raise TurnedAway("the server keeps nothing on disk; if that is meant, say so: ?durable=0")
        if self.replicated and not server[b"replicated"]:
            raise TurnedAway("the URL names several servers, but this one is not replicated: name one")


def make_route(url: Url) -> Route:
    """The route that a URL describes."""
    if not url.hosts:
        raise InvalidRequest("url", str(url), f"it names no host, as holdfast://127.0.0.1:{PORT} does")
    if url.path:
        raise InvalidRequest("url", str(url), "a lock server has no databases: nothing comes after the port")
    durable = "durable" not in url.options or url.flag("durable")
    tls = find_tls(url, url.flag("tls") or "ca" in url.options)
    addresses = tuple(parse_address(host, PORT) for host in url.hosts)
    return Route(addresses, url.user, url.password, tls, durable)
