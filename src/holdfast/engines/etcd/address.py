"""Where an etcd is, and how to get in: taken from the URL."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from holdfast.core.urls import Url
from holdfast.errors import InvalidRequest

OPTIONS = frozenset({"tls", "ca", "cert", "key", "server_name"})
DEFAULT_PORT = 2379


@dataclass(frozen=True)
class Address:
    """The endpoints of one cluster, and what opens them."""

    endpoints: tuple[str, ...]
    shown: str
    """The URL without its secrets."""
    user: str = ""
    password: str = field(default="", repr=False)
    tls: bool = False
    ca: bytes | None = None
    server_name: str = ""
    cert_files: tuple[str, str] | None = None
    """A client certificate and its key."""


def _read(url: Url, option: str) -> bytes | None:
    path = url.options.get(option)
    if path is None:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidRequest(f"url option {option}", path, f"it cannot be read: {error.strerror}") from error


def _with_port(host: str) -> str:
    """`::1` is an address without a port, `[::1]:2379` one with it."""
    if host.count(":") > 1 and not host.startswith("["):
        host = f"[{host}]"
    has_port = ":" in host.rpartition("]")[2]
    return host if has_port else f"{host}:{DEFAULT_PORT}"


def parse_address(url: Url) -> Address:
    """Take an engine URL apart; InvalidRequest if something in it cannot be."""
    if url.path:
        raise InvalidRequest("url", str(url), "etcd:// takes hosts only; a namespace goes to connect(namespace=...)")
    hosts = url.hosts or ("127.0.0.1",)
    cert, key = _read(url, "cert"), _read(url, "key")
    if (cert is None) != (key is None):
        raise InvalidRequest("url options", "cert, key", "a client certificate needs both")
    tls = url.flag("tls") if "tls" in url.options else bool({"ca", "cert"} & set(url.options))
    if not tls and url.options.keys() & {"ca", "cert", "server_name"}:
        raise InvalidRequest("url option tls", "0", "certificates are of no use without it")
    return Address(
        tuple(_with_port(host) for host in hosts),
        str(url),
        url.user,
        url.password,
        tls,
        _read(url, "ca"),
        url.options.get("server_name", ""),
        None if cert is None else (url.options["cert"], url.options["key"]),
    )
