"""What the server is told: by a configuration file, and by the command line, which wins."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from holdfast.errors import InvalidRequest
from holdfast.server import addresses
from holdfast.server.addresses import Address
from holdfast.server.http_hosts import Hosts, parse_hosts
from holdfast.server.limits import Limits
from holdfast.server.tls import TlsFiles
from holdfast.server.users import Users

LogForm = Literal["auto", "text", "json"]
KNOWN = frozenset(
    {
        "advertise", "listen", "store", "http", "http_hosts", "insecure", "log_format", "log_level", "tls", "limits",
        "users",
    }
)  # fmt: skip
LOG_FORMATS = ("auto", "text", "json")
LOG_LEVELS = ("debug", "info", "warning", "error")
DEFAULT_LISTEN = (Address("127.0.0.1", addresses.DEFAULT_PORT),)
DEFAULT_STORE = "sqlite:///holdfast-server.db"


@dataclass(frozen=True)
class Settings:
    """A valid configuration."""

    listen: tuple[Address, ...] = DEFAULT_LISTEN
    store: str = field(default=DEFAULT_STORE, repr=False)
    """A URL, which may contain a password."""
    advertise: Address | None = None
    """Where clients reach this one of several servers."""
    http: Address | None = None
    http_hosts: tuple[str, ...] = ()
    """Names that HTTP answers to beside its own."""
    insecure: bool = False
    log_format: str = "auto"
    log_level: str = "info"
    tls: TlsFiles | None = None
    limits: Limits = field(default_factory=Limits)
    users: Users = field(default_factory=Users)

    def __post_init__(self) -> None:
        if self.insecure or self.users.required:
            return
        public = [address for address in self.listen if not address.local]
        if public and not (self.tls is not None and self.tls.client_ca):
            raise InvalidRequest(
                "listen",
                str(public[0]),
                "others can reach this address, and everybody could take and break locks: configure users or client "
                "certificates, or say --insecure if the network is yours alone",
            )
        if self.http is not None and not self.http.local:
            raise InvalidRequest(
                "http",
                str(self.http),
                "others can reach this address, and everybody could read who holds what; HTTP asks for no certificate: "
                "configure users, or say --insecure if the network is yours alone",
            )

    @property
    def advertised(self) -> Address:
        """Where the others send clients to; the address that it listens on, if that is one."""
        found = self.advertise or self.listen[0]
        if found.host in ("0.0.0.0", "::") or not found.port:
            raise InvalidRequest("advertise", str(found), "say where clients reach this server: --advertise host:port")
        return found

    @property
    def hosts(self) -> Hosts:
        """The names that HTTP answers to: those of its addresses too."""
        addresses_of_it = (self.http, self.advertise)
        return Hosts([*self.http_hosts, *(address.host for address in addresses_of_it if address is not None)])

    def needs_restart(self, running: Settings) -> list[str]:
        """What differs and is not taken over by a running server."""
        names = ("listen", "store", "advertise", "http")
        found = [name for name in names if getattr(self, name) != getattr(running, name)]
        if (self.tls is None) != (running.tls is None):
            found.append("tls (on or off)")
        return found if self.vouching == running.vouching else [*found, "tls.client_ca"]

    @property
    def vouching(self) -> str:
        """Who vouches for clients; empty: nobody has to."""
        return "" if self.tls is None else self.tls.client_ca

    def in_place_of(self, running: Settings) -> Settings:
        """What a running server would be with this: its sockets stay, and what they ask of clients.

        InvalidRequest if it would be open to everybody. Certificates of clients protect it only if both say so: a
        live socket asks for them as it did when it was opened.
        """
        asked = self.vouching if self.vouching == running.vouching else ""
        tls = None if running.tls is None else replace(self.tls or running.tls, client_ca=asked)
        return replace(
            self, listen=running.listen, store=running.store, advertise=running.advertise, http=running.http, tls=tls
        )


def read(path: Path | None, overrides: Mapping[str, Any]) -> Settings:
    """The configuration in a file, with what the command line says instead. InvalidRequest names what is wrong."""
    found: dict[str, Any] = {}
    if path is not None:
        try:
            found = tomllib.loads(path.read_text())
        except OSError as error:
            raise InvalidRequest("config", str(path), f"it cannot be read: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidRequest("config", str(path), f"it is not TOML: {error}") from error
    found.update(overrides)
    return parse(found)


def parse(found: Mapping[str, Any]) -> Settings:
    """Settings out of plain data."""
    for key in found:
        if key not in KNOWN:
            raise InvalidRequest("config", key, f"there is no such setting; there are {', '.join(sorted(KNOWN))}")
    for key in ("tls", "limits", "users"):
        if not isinstance(found.get(key, {}), dict):
            raise InvalidRequest(key, found[key], "it is a table")
    listen = found.get("listen", [])
    listen = [listen] if isinstance(listen, str) else listen
    if not isinstance(listen, list):
        raise InvalidRequest("listen", listen, "it is an address or a list of them")
    text = {key: found[key] for key in ("store", "log_format", "log_level") if key in found}
    for key, value in text.items():
        allowed = {"log_format": LOG_FORMATS, "log_level": LOG_LEVELS}.get(key)
        if not isinstance(value, str) or (allowed is not None and value not in allowed):
            if allowed is None:
                raise InvalidRequest(key, type(value).__name__, "it is a URL")
            raise InvalidRequest(key, value, f"it is one of {', '.join(allowed)}")
    insecure = found.get("insecure", False)
    if not isinstance(insecure, bool):
        raise InvalidRequest("insecure", insecure, "it is true or false")
    settings = Settings(
        listen=tuple(addresses.parse(address) for address in listen) or DEFAULT_LISTEN,
        **text,
        advertise=addresses.parse(found["advertise"], "advertise") if found.get("advertise") else None,
        http=addresses.parse(found["http"], "http") if found.get("http") else None,
        http_hosts=parse_hosts(found.get("http_hosts", [])),
        insecure=insecure,
        tls=TlsFiles.of(found["tls"]) if "tls" in found else None,
        limits=Limits.of(found.get("limits", {})),
        users=Users.of(found.get("users", {})),
    )
    if not settings.vouching:
        settings.users.check_without_certificates()
    return settings
