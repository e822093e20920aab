"""Where a ZooKeeper ensemble is, and how to speak to it: an engine URL as kazoo understands it."""

from __future__ import annotations

import re
import socket
import ssl
from dataclasses import dataclass, field
from typing import Any

from kazoo.client import KazooClient
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from holdfast.core.urls import Url
from holdfast.errors import InvalidRequest

OPTIONS = frozenset({"tls", "ca", "cert", "key", "key_password", "verify", "hostname", "auth", "mechanism", "acl"})
AUTH = ("digest", "sasl")
PORT = 2181

_HOST = re.compile(r"(?P<host>\[[^]]+\]|[^:\[\]]+)(?::(?P<port>\d{1,5}))?")


@dataclass(frozen=True, slots=True)
class ZooKeeperAddress:
    """An engine URL, taken apart and checked."""

    shown: str
    """Without secrets, for messages."""
    hosts: tuple[str, ...]
    chroot: str
    """With its first slash, without a last one; empty for none."""
    tls: bool
    settings: dict[str, Any] = field(repr=False)
    """What KazooClient is given beside hosts and session."""

    def wrap(self, plain: socket.socket, host: str) -> ssl.SSLSocket:
        """TLS over a connection, which is closed if that fails."""
        settings = self.settings
        try:
            context = ssl.create_default_context(cafile=settings["ca"])
            context.check_hostname = settings["check_hostname"]
            context.verify_mode = ssl.CERT_REQUIRED if settings["verify_certs"] else ssl.CERT_NONE
            if settings["certfile"]:
                context.load_cert_chain(settings["certfile"], settings["keyfile"], settings["keyfile_password"])
            return context.wrap_socket(plain, server_hostname=host)
        except BaseException:
            plain.close()
            raise


def parse_address(url: Url) -> ZooKeeperAddress:
    """Check a URL; InvalidRequest says what is wrong with it."""
    chroot = _chroot(url)
    hosts = tuple(_host(url, text) for text in url.hosts or ("127.0.0.1",))
    options = url.options
    tls = url.flag("tls")
    for option in ("ca", "cert", "key", "key_password", "verify", "hostname"):
        if option in options and not tls:
            value = "…" if option == "key_password" else options[option]
            raise InvalidRequest(f"url option {option}", value, "it needs tls=1")
    settings: dict[str, Any] = {
        "use_ssl": tls,
        "ca": options.get("ca"),
        "certfile": options.get("cert"),
        "keyfile": options.get("key"),
        "keyfile_password": options.get("key_password"),
        "verify_certs": url.flag("verify") if "verify" in options else True,
        "check_hostname": url.flag("hostname") if "hostname" in options else tls and options.get("verify", "1") == "1",
        **_login(url),
        "default_acl": _acl(url),
    }
    return ZooKeeperAddress(str(url), hosts, chroot, tls, settings)


def _chroot(url: Url) -> str:
    path = url.path.strip("/")
    if not path:
        return ""
    if any(segment in ("", ".", "..") for segment in path.split("/")) or path.split("/")[0] == "zookeeper":
        raise InvalidRequest("url", str(url), "the path is where Holdfast keeps its nodes, as in /apps/locks")
    return f"/{path}"


def _host(url: Url, text: str) -> str:
    found = _HOST.fullmatch(text)
    if found is None:
        raise InvalidRequest("url", str(url), f"{text!r} is not a host; an IPv6 address stands in brackets")
    return f"{found['host']}:{found['port'] or PORT}"


def _login(url: Url) -> dict[str, Any]:
    auth = url.options.get("auth", "digest")
    if auth not in AUTH:
        raise InvalidRequest("url option auth", auth, f"one of {', '.join(AUTH)}")
    if auth == "sasl":
        mechanism = url.options.get("mechanism", "DIGEST-MD5")
        options = {"mechanism": mechanism, "service": "zookeeper"}
        if url.user:
            options |= {"username": url.user, "password": url.password, "principal": "zk-sasl-md5"}
        return {"sasl_options": options}
    if "mechanism" in url.options:
        raise InvalidRequest("url option mechanism", url.options["mechanism"], "it needs auth=sasl")
    return {"auth_data": [("digest", f"{url.user}:{url.password}")]} if url.user else {}


def _acl(url: Url) -> Any:
    """Who may touch our nodes: those who log in as we do, if we log in at all."""
    logs_in = bool(url.user) or url.options.get("auth") == "sasl"
    chosen = url.options.get("acl", "creator" if logs_in else "open")
    if chosen not in ("open", "creator"):
        raise InvalidRequest("url option acl", chosen, "open or creator")
    if chosen == "creator" and not logs_in:
        raise InvalidRequest("url option acl", chosen, "it needs a user, as in zookeeper://user:password@host")
    return CREATOR_ALL_ACL if chosen == "creator" else OPEN_ACL_UNSAFE


def borrow(lender: object) -> Url | None:
    """The settings of a KazooClient, as a URL; None if it is something else. Its connection is left alone."""
    if not isinstance(lender, KazooClient):
        return None
    hosts = tuple(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in lender.hosts)
    options: dict[str, str] = {}
    if lender.use_ssl:
        options |= {"tls": "1", "verify": str(int(lender.verify_certs)), "hostname": str(int(lender.check_hostname))}
        files = {"ca": lender.ca, "cert": lender.certfile, "key": lender.keyfile}
        files["key_password"] = lender.keyfile_password
        options |= {option: value for option, value in files.items() if value}
    user = password = ""
    for scheme, credential in lender.auth_data:
        if scheme == "digest":
            user, _, password = credential.partition(":")
    sasl = lender._connection.sasl_options
    if sasl is not None:
        options |= {"auth": "sasl", "mechanism": sasl.get("mechanism", "DIGEST-MD5")}
        user, password = sasl.get("username", ""), sasl.get("password", "")
    if lender.default_acl is not None:
        options["acl"] = "creator" if list(lender.default_acl) == list(CREATOR_ALL_ACL) else "open"
    elif user or sasl is not None:
        options["acl"] = "open"
    return Url("zookeeper", hosts, lender.chroot.strip("/"), user, password, options)
