"""Engine URLs: parsed by hand, because several hosts in one URL are not what urllib expects."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from urllib.parse import parse_qsl, unquote

from holdfast.errors import InvalidRequest

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_EXAMPLES = "an engine URL looks like sqlite:///locks.db or redis://127.0.0.1:6379/0"


def shown(text: str) -> str:
    """An address fit for a message: nothing between `//` and the last `@`, and no options.

    A password may contain any character, also where the address is not valid. So the last `@` decides, unless
    it may belong to an option: then nothing after `//` is shown.
    """
    scheme, slashes, rest = text.partition("//")
    if not slashes:
        scheme, rest = "", text
    before, at, rest = rest.rpartition("@")
    if "=" in before.partition("?")[2]:
        at, rest = "", "…"
    rest = rest.partition("?")[0] if at or "?" not in rest else f"{rest.partition('?')[0]}?…"
    if not _SCHEME.fullmatch(scheme.removesuffix(":")):
        scheme, slashes = "", slashes and f"…{slashes}"
    return f"{scheme}{slashes}{'…@' if at else ''}{rest}"


@dataclass(frozen=True, slots=True, repr=False)
class Url:
    """An engine's address, taken apart."""

    scheme: str
    hosts: tuple[str, ...] = ()
    path: str = ""
    """What follows the authority, decoded, without its first slash: SQLAlchemy's habit."""
    user: str = ""
    password: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """The address without user, password and options, fit for a message."""
        path = f"/{self.path}" if self.path else ""
        if not self.hosts and "@" in path:
            path = f"…@{path.rpartition('@')[2]}"
        return f"{self.scheme}://{','.join(self.hosts)}{path}"

    def __repr__(self) -> str:
        return f"Url({str(self)!r})"

    def check_options(self, known: Iterable[str]) -> None:
        """Refuse an option that the engine does not know, naming the nearest."""
        known = sorted(known)
        for option in self.options:
            if option not in known:
                near = get_close_matches(option, known, 1)
                hint = f"; did you mean {near[0]!r}?" if near else f"; it knows {', '.join(known) or 'none'}"
                raise InvalidRequest("url option", option, f"{self.scheme}:// does not know it{hint}")

    def flag(self, option: str) -> bool:
        """An option that is on or off: 1, true, yes, or 0, false, no."""
        text = self.options.get(option, "0").lower()
        if text not in ("1", "true", "yes", "0", "false", "no"):
            raise InvalidRequest(f"url option {option}", text, "it is 1 or 0")
        return text in ("1", "true", "yes")


def parse(text: str) -> Url:
    """Take `scheme://user:password@h1,h2/path?option=value` apart."""
    if not isinstance(text, str):
        raise InvalidRequest("url", type(text).__name__, _EXAMPLES)
    scheme, separator, rest = text.partition("://")
    if not separator or not _SCHEME.fullmatch(scheme):
        raise InvalidRequest("url", shown(text), _EXAMPLES)
    rest, _, query = rest.partition("?")
    authority, slash, path = rest.partition("/")
    is_file = scheme.lower() == "sqlite" and not authority
    if "@" in path + query and not is_file:
        # The password may be what has the `/` or `?` in it. Then its rest must not be taken for a path and shown.
        rule = "write / ? # @ in a user or password as %2F %3F %23 %40, and @ in a path or an option as %40"
        raise InvalidRequest("url", shown(text), rule)
    credentials, _, hosts = authority.rpartition("@")
    user, _, password = credentials.partition(":")
    options: dict[str, str] = {}
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        # Neither the options nor what Python says of them, which quotes them.
        raise InvalidRequest("url options", shown(text), "they cannot be read: ?name=value&name=value") from None
    for key, value in pairs:
        if key in options:
            raise InvalidRequest("url option", key, "it is given twice")
        options[key] = value
    return Url(
        scheme=scheme.lower(),
        hosts=tuple(host for host in hosts.split(",") if host),
        path=unquote(path) if slash else "",
        user=unquote(user),
        password=unquote(password),
        options=options,
    )
