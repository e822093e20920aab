"""Where a PostgreSQL is, and how to speak to it: an engine URL as libpq understands it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast.core.urls import Url
from holdfast.errors import InvalidRequest

OWN_OPTIONS = frozenset({"schema", "recipe", "connections"})
_SET_BY_URL = frozenset({"user", "password", "dbname"})
LIBPQ_OPTIONS = frozenset(option.keyword.decode() for option in pq.Conninfo.get_defaults()) - _SET_BY_URL
"""What a PostgreSQL URL may carry anyway: sslmode, host=/a/socket, target_session_attrs, …"""

DEFAULT_SCHEMA = "holdfast"
MOST_CONNECTIONS = 2
"""How many connections the callers of one client share; its keeper has one more."""

_SCHEMA = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_HOST = re.compile(r"\[(?P<v6>[^]]+)\](?::(?P<v6port>\d+))?|(?P<host>[^:]*)(?::(?P<port>\d+))?")


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """An engine URL, taken apart and checked."""

    shown: str
    """Without secrets, for messages."""
    schema: str
    connections: int
    conninfos: tuple[str, ...] = field(repr=False)
    """One for each host, to be tried in turn."""


def parse_address(url: Url) -> PostgresAddress:
    """Check a URL; InvalidRequest says what is wrong with it."""
    options = {key: value for key, value in url.options.items() if key not in OWN_OPTIONS}
    settings: dict[str, Any] = {
        "user": url.user or None,
        "password": url.password or None,
        "dbname": url.path or None,
        "application_name": "holdfast",
        **options,
        "client_encoding": "UTF8",
    }
    return PostgresAddress(
        shown=str(url),
        schema=check_schema(url.options.get("schema", DEFAULT_SCHEMA)),
        connections=_connections(url.options.get("connections", str(MOST_CONNECTIONS))),
        conninfos=tuple(make_conninfo("", **{**settings, **place}) for place in _places(url)),
    )


def _places(url: Url) -> Iterator[dict[str, str]]:
    """Each host with its port. libpq would try them itself, but without a limit on how long one may be silent."""
    for text in url.hosts or ("",):
        found = _HOST.fullmatch(text)
        if found is None:
            raise InvalidRequest("url", str(url), f"{text!r} is not a host; an IPv6 address stands in brackets")
        host, port = found["v6"] or found["host"], found["v6port"] or found["port"]
        yield {key: value for key, value in (("host", host), ("port", port)) if value}


def check_schema(name: str) -> str:
    """A schema name that needs no thought about quoting."""
    if not _SCHEMA.fullmatch(name) or name.lower().startswith("pg_"):
        raise InvalidRequest("url option schema", name, "1 to 63 letters, digits and underscores, not pg_…")
    return name


def _connections(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 100:
        raise InvalidRequest("url option connections", text, "1 to 100")
    return int(text)


def borrow(lender: object) -> Url | None:
    """The settings of a psycopg connection or pool, as a URL; None if it is something else."""
    if hasattr(lender, "conninfo") and hasattr(lender, "kwargs"):
        kwargs = lender.kwargs if isinstance(lender.kwargs, dict) else {}
        conninfo = lender.conninfo if isinstance(lender.conninfo, str) else ""
        known = {key: value for key, value in kwargs.items() if key in LIBPQ_OPTIONS | _SET_BY_URL}
        settings = {key: str(value) for key, value in conninfo_to_dict(conninfo, **known).items() if value is not None}
    elif hasattr(lender, "info") and hasattr(lender.info, "get_parameters"):
        settings = {**lender.info.get_parameters(), "password": lender.info.password}
    else:
        return None
    settings.pop("client_encoding", None)
    host = settings.pop("host", "")
    port = settings.pop("port", "")
    options: dict[str, str] = {}
    if host.startswith("/"):
        # A socket's folder is no part of a URL's authority.
        options |= {"host": host, **({"port": port} if port else {})}
        hosts: tuple[str, ...] = ()
    else:
        ports = port.split(",") if port else [""]
        names = host.split(",") if host else []
        hosts = tuple(
            _with_port(name, ports[number] if len(ports) > 1 else ports[0]) for number, name in enumerate(names)
        )
        if not names and port:
            options["port"] = port
    user, password, path = (settings.pop(key, "") for key in ("user", "password", "dbname"))
    return Url("postgresql", hosts, path, user, password, options | settings)


def _with_port(host: str, port: str) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{port}" if port else shown
