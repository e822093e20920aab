"""TLS: who the server is, and whose clients it takes."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Files in PEM form."""

    certificate: str
    key: str
    client_ca: str = ""
    """Who vouches for clients; set, each client has to show a certificate."""

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> TlsFiles:
        """The table `tls` of a configuration. InvalidRequest names what is wrong."""
        unknown = set(settings) - {"certificate", "key", "client_ca"}
        if unknown or not all(isinstance(value, str) for value in settings.values()):
            raise InvalidRequest(
                "tls", sorted(unknown or settings)[0], "there are certificate, key and client_ca, files each"
            )
        if not settings.get("certificate") or not settings.get("key"):
            raise InvalidRequest("tls", "", "TLS needs a certificate and its key")
        return cls(settings["certificate"], settings["key"], settings.get("client_ca", ""))

    def load(self, context: ssl.SSLContext) -> None:
        """Read the certificate and its key; connections from now on show it."""
        try:
            context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            raise InvalidRequest("tls", self.certificate, f"it cannot be used: {error}") from error

    def context(self, with_clients: bool = True) -> ssl.SSLContext:
        """What sockets need. `with_clients`: clients have to show a certificate, if somebody vouches for them."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.client_ca and with_clients:
            context.verify_mode = ssl.CERT_REQUIRED
            try:
                context.load_verify_locations(self.client_ca)
            except (OSError, ssl.SSLError) as error:
                raise InvalidRequest("tls.client_ca", self.client_ca, f"it cannot be used: {error}") from error
        self.load(context)
        return context

    def vouchers(self) -> bytes:
        """What is in `client_ca`."""
        try:
            return Path(self.client_ca).read_bytes() if self.client_ca else b""
        except OSError as error:
            raise InvalidRequest("tls.client_ca", self.client_ca, f"it cannot be read: {error.strerror}") from error
