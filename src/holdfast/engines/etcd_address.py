"""Where an etcd is, and how to get in: taken from the URL."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

# A fork must be able to go on with channels of its own, and says nothing about it on stderr. Both are read by
# gRPC when it is first imported.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "1")
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

import grpc

from holdfast.core.urls import Url
from holdfast.errors import InvalidRequest

OPTIONS = frozenset({"tls", "ca", "cert", "key", "server_name"})
DEFAULT_PORT = 2379

CHANNEL = (
    # A proxy of the web is not on the way to a coordination service.
    ("grpc.enable_http_proxy", 0),
    # Channels of their own: one client's broken connection is not another's.
    ("grpc.use_local_subchannel_pool", 1),
    # What may be repeated, and where, is decided here.
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 250),
    ("grpc.max_reconnect_backoff_ms", 500),
    # A watch on a connection that nothing comes through any more is noticed, and made again elsewhere.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.max_receive_message_length", -1),
)


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
    key: bytes | None = field(default=None, repr=False)
    cert: bytes | None = None
    server_name: str = ""
    cert_files: tuple[str, str] | None = None
    """The certificate and the key again, as files: Python's own TLS reads nothing else."""

    def channel(self, endpoint: str) -> grpc.Channel:
        """A connection to one endpoint, made when it is first used."""
        options = list(CHANNEL)
        if not self.tls:
            return grpc.insecure_channel(endpoint, options)
        secrets = grpc.ssl_channel_credentials(self.ca, self.key, self.cert)
        named = [("grpc.ssl_target_name_override", self.server_name)] if self.server_name else []
        return grpc.secure_channel(endpoint, secrets, [*options, *named])


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
        key,
        cert,
        url.options.get("server_name", ""),
        None if cert is None else (url.options["cert"], url.options["key"]),
    )
