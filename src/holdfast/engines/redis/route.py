"""Where the server is that has the namespace: one Redis, a sentinel's primary, or a cluster's node."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from holdfast.core.urls import Url
from holdfast.engines.resp.blocking import Connection
from holdfast.engines.resp.wire import Address, Login, Lost, Plain, known_host, parse_address
from holdfast.errors import InvalidRequest
from holdfast.runtime import clock

TRY_FOR = 1.0
"""How long one of several servers is asked before the next one is."""


class Route(Protocol):
    """Finds the server. Used from several threads: what it remembers is replaced, never changed."""

    login: Login
    tls: ssl.SSLContext | None
    asks: bool
    """Whether it asks servers where to go, which takes time."""

    @property
    def current(self) -> Address | None:
        """Where the namespace was found last; None while that is not known."""

    def locate(self, until: float) -> Address:
        """The address to connect to; Lost if nobody can tell."""

    def moved(self, address: Address) -> None:
        """A server said that the namespace is there now."""

    def failed(self, address: Address) -> None:
        """A connection to this address could not be made, or it was the wrong server."""


@dataclass
class OneServer:
    """Always the same."""

    address: Address
    login: Login
    tls: ssl.SSLContext | None = None
    asks = False

    @property
    def current(self) -> Address:
        return self.address

    def locate(self, until: float) -> Address:
        return self.address

    def moved(self, address: Address) -> None:
        """A server that is no cluster sends nobody elsewhere; a cluster behind a plain URL does."""
        self.address = address

    def failed(self, address: Address) -> None:
        """There is no other."""


def ask(address: Address, login: Login, tls: ssl.SSLContext | None, parts: tuple[str, ...], until: float) -> object:
    """One command to one server, on a connection of its own."""
    connection = Connection(address, login, tls, min(until, clock.now() + TRY_FOR))
    try:
        return connection.run(Plain(parts).packed(False), min(until, clock.now() + TRY_FOR))
    finally:
        connection.close()


@dataclass
class Sentinels:
    """Asks sentinels who the primary is, anew for every connection: it changes at a failover."""

    sentinels: tuple[Address, ...]
    service: str
    login: Login
    sentinel_login: Login = field(default_factory=Login)
    tls: ssl.SSLContext | None = None
    current: Address | None = None
    asks = True
    _wrong: Address | None = None
    """What was named last, and was not the primary or not there."""

    def locate(self, until: float) -> Address:
        problems = []
        wrong: Address | None = None
        for sentinel in self.sentinels:
            try:
                reply = ask(
                    sentinel,
                    self.sentinel_login,
                    self.tls,
                    ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service),
                    until,
                )
            except Lost as lost:
                problems.append(f"{sentinel}: {lost.problem}")
                continue
            if not isinstance(reply, list):
                problems.append(f"{sentinel}: knows no {self.service!r}")
                continue
            address = Address(reply[0].decode(), int(reply[1]))
            if address == self._wrong:
                # One that was cut off, or began anew, may know an old primary only. The others may know better.
                wrong = address
                continue
            # The one that answered is asked first next time.
            others = tuple(other for other in self.sentinels if other != sentinel)
            self.sentinels = (sentinel, *others)
            self.current, self._wrong = address, None
            return address
        if wrong is not None:
            self.current, self._wrong = wrong, None
            return wrong
        raise Lost(f"no sentinel knows the primary ({'; '.join(problems)})", sent=False)

    def moved(self, address: Address) -> None:
        """Only a cluster moves what it keeps."""

    def failed(self, address: Address) -> None:
        """The sentinels are asked again anyhow, and one that names another address is believed first."""
        self._wrong = address


@dataclass
class Cluster:
    """Goes to the node that had the slot last, and follows redirections; asks the others when that one is gone."""

    seeds: tuple[Address, ...]
    login: Login
    tls: ssl.SSLContext | None = None
    current: Address | None = None
    nodes: tuple[Address, ...] = ()
    asks = True

    def locate(self, until: float) -> Address:
        if self.current is not None:
            return self.current
        problems = []
        for seed in dict.fromkeys((*self.nodes, *self.seeds)):
            try:
                reply = ask(seed, self.login, self.tls, ("CLUSTER", "SLOTS"), until)
            except Lost as lost:
                problems.append(f"{seed}: {lost.problem}")
                continue
            if reply == []:
                problems.append(f"{seed}: it is in no cluster, or in one without slots")
                continue
            if isinstance(reply, list):
                self.nodes = tuple(node_addresses(reply, seed))
                # Any node will do: the first request is sent on to the one that has the slot.
                self.current = seed
                return seed
            problems.append(f"{seed}: {reply}")
        raise Lost(f"no node of the cluster can be reached ({'; '.join(problems)})", sent=False)

    def moved(self, address: Address) -> None:
        self.current = address

    def failed(self, address: Address) -> None:
        if self.current == address:
            self.current = None
            self.nodes = (*(node for node in self.nodes if node != address), address)


def node_addresses(slots: Iterable[list[list[bytes]]], asked: Address) -> Iterable[Address]:
    """Every node that a cluster's map of slots names."""
    for _, _, *nodes in slots:
        for host, port, *_ in nodes:
            yield Address(known_host(host.decode() if host else "", asked), int(port))


OPTIONS = frozenset({"ca", "cert", "key", "verify", "db", "sentinel_user", "sentinel_password", "tls"})


def make_route(url: Url) -> Route:
    """The route that a URL describes."""
    if not url.hosts:
        raise InvalidRequest("url", str(url), "it names no host, as redis://127.0.0.1:6379/0 does")
    tls = find_tls(url, url.scheme == "rediss" or url.flag("tls"))
    kind = url.scheme.partition("+")[2]
    if kind == "sentinel":
        if not url.path:
            raise InvalidRequest("url", str(url), "it names the service: redis+sentinel://s1,s2,s3/mymaster")
        return Sentinels(
            tuple(parse_address(host, 26379) for host in url.hosts),
            url.path,
            Login(url.user, url.password, database(url.options.get("db", "0")), primary=True),
            Login(url.options.get("sentinel_user", ""), url.options.get("sentinel_password", "")),
            tls,
        )
    if kind == "cluster":
        if url.path not in ("", "0"):
            raise InvalidRequest("url", str(url), "a cluster has database 0 only")
        seeds = tuple(parse_address(host, 6379) for host in url.hosts)
        return Cluster(seeds, Login(url.user, url.password), tls)
    if len(url.hosts) > 1:
        raise InvalidRequest("url", str(url), "one host; several are redis+sentinel://, redis+cluster:// or redlock://")
    login = Login(url.user, url.password, database(url.path or url.options.get("db", "0")))
    return OneServer(parse_address(url.hosts[0], 6379), login, tls)


def database(text: str) -> int:
    """The number of a database."""
    if not text.isdigit():
        raise InvalidRequest("url", text, "a database is a number, as in redis://127.0.0.1:6379/0")
    return int(text)


def find_tls(url: Url, wanted: bool) -> ssl.SSLContext | None:
    """TLS if it is wanted. If not, its options are refused: who gives them believes that nobody can listen."""
    if wanted:
        return make_tls(url)
    for option in ("ca", "cert", "key", "verify"):
        if option in url.options:
            raise InvalidRequest(f"url option {option}", url.options[option], "it is for TLS: say tls=1 too")
    return None


def make_tls(url: Url) -> ssl.SSLContext:
    """TLS as the URL asks for it: verified against the system's authorities unless told otherwise."""
    files = {option: url.options[option] for option in ("ca", "cert", "key") if option in url.options}
    for option, path in files.items():
        if not os.access(path, os.R_OK):
            raise InvalidRequest(f"url option {option}", path, "there is no such file, or it cannot be read")
    try:
        context = ssl.create_default_context(cafile=files.get("ca"))
        if "cert" in files:
            context.load_cert_chain(files["cert"], files.get("key"))
    except OSError as error:
        raise InvalidRequest("url option ca, cert or key", str(url), f"the file cannot be used: {error}") from error
    if "verify" in url.options and not url.flag("verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def borrow(lender: Any) -> Url | None:
    """The settings of a redis-py client, blocking or asyncio, single, sentinel or cluster, as a URL."""
    nodes = getattr(lender, "nodes_manager", None)
    if nodes is not None:
        hosts = tuple(f"{node.host}:{node.port}" for node in nodes.startup_nodes.values())
        return _lent("redis+cluster", hosts, "", nodes.connection_kwargs)
    pool: Any = getattr(lender, "connection_pool", None)
    if pool is None:
        return None
    settings = pool.connection_kwargs
    if hasattr(pool, "sentinel_manager"):
        sentinels = [sentinel.connection_pool.connection_kwargs for sentinel in pool.sentinel_manager.sentinels]
        hosts = tuple(f"{found['host']}:{found['port']}" for found in sentinels)
        url = _lent("redis+sentinel", hosts, pool.service_name, settings)
        known = {"db": settings.get("db"), "sentinel_user": sentinels[0].get("username"),
                 "sentinel_password": sentinels[0].get("password")}  # fmt: skip
        return replace(url, options={**url.options, **{key: str(value) for key, value in known.items() if value}})
    if "path" in settings:
        raise InvalidRequest("url", lender, "Unix sockets are not supported: give the server's host and port")
    host = f"{settings.get('host', 'localhost')}:{settings.get('port', 6379)}"
    return _lent("redis", (host,), str(settings.get("db") or 0), settings, pool.connection_class)


def _lent(
    scheme: str, hosts: tuple[str, ...], path: str, settings: Mapping[str, Any], made_by: type[object] = object
) -> Url:
    """A URL from what redis-py calls its connection arguments."""
    options: dict[str, str] = {}
    if settings.get("ssl") or "SSL" in made_by.__name__:
        options["tls"] = "1"
        for theirs, ours in (("ssl_ca_certs", "ca"), ("ssl_certfile", "cert"), ("ssl_keyfile", "key")):
            if settings.get(theirs):
                options[ours] = str(settings[theirs])
        if str(settings.get("ssl_cert_reqs", "required")).lower() in ("none", "verifymode.cert_none"):
            options["verify"] = "0"
    return Url(scheme, hosts, path, settings.get("username") or "", settings.get("password") or "", options)
