"""Engine URLs: parsed by hand, because several hosts in one URL are not what urllib expects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from urllib.parse import parse_qsl, unquote

from holdfast.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Url:
    """An engine's address, taken apart."""

    scheme: str
    hosts: tuple[str, ...] = ()
    path: str = ""
    """What follows the authority, decoded, without its first slash: SQLAlchemy's habit."""
    user: str = ""
    password: str = field(default="", repr=False)
    options: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """The address without its secrets, fit for a message."""
        at = f"{self.user}@" if self.user else ""
        path = f"/{self.path}" if self.path else ""
        return f"{self.scheme}://{at}{','.join(self.hosts)}{path}"

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
    if not isinstance(text, str) or "://" not in text:
        raise InvalidRequest("url", text, "an engine URL looks like sqlite:///locks.db or redis://127.0.0.1:6379/0")
    scheme, rest = text.split("://", 1)
    rest, _, query = rest.partition("?")
    authority, slash, path = rest.partition("/")
    credentials, _, hosts = authority.rpartition("@")
    user, _, password = credentials.partition(":")
    options: dict[str, str] = {}
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError as error:
        # Not the whole text: it may have a password in it.
        raise InvalidRequest("url options", query, f"they cannot be read: {error}") from error
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
