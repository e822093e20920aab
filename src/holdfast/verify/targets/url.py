"""The user's own deployment: nothing of it is touched, faults are the clients' own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.core import urls
from holdfast.errors import InvalidRequest
from holdfast.verify.target import Address, Target

PORTS = {"redis": 6379, "redlock": 6379, "postgresql": 5432, "zookeeper": 2181, "etcd": 2379}
"""Where clients go to the hosts that the URL names, and nowhere else: a proxy can stand before each."""


class UrlTarget(Target):
    """What a URL names. Everything is done under names of this run, in a namespace of the verifier."""

    name = "url"
    ttl = 3.0

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder)
        self._url, self._parsed = url, urls.parse(url)
        if self._parsed.scheme == "memory":
            raise InvalidRequest(
                "target", urls.shown(url), "each process has a memory:// of its own, and clients are processes"
            )

    @property
    def shown(self) -> str:
        return str(self._parsed)

    @property
    def addresses(self) -> list[Address]:
        port = PORTS.get(self._parsed.scheme)
        # A certificate is for the server's name, which a proxy does not have.
        secured = {"tls", "ca", "cert", "sslmode", "sslrootcert"} & set(self._parsed.options)
        if port is None or secured or any("[" in host for host in self._parsed.hosts):
            return []
        parts = [host.partition(":") for host in self._parsed.hosts]
        return [(name, int(given) if given else port) for name, _, given in parts]

    def url(self, addresses: Sequence[Address]) -> str:
        if list(addresses) == self.addresses:
            return self._url
        scheme, _, rest = self._url.partition("://")
        authority, slash, path = rest.partition("/")
        authority, question, query = authority.partition("?")
        login, at, _ = authority.rpartition("@")
        hosts = ",".join(f"{host}:{port}" for host, port in addresses)
        return f"{scheme}://{login}{at}{hosts}{question}{query}{slash}{path}"
