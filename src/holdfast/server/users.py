"""Who may do what: users, and their rights by the start of a name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.errors import InvalidRequest
from holdfast.model import Party
from holdfast.server import passwords

HOLD, READ, BREAK = "hold", "read", "break"
RIGHTS = frozenset({HOLD, READ, BREAK})


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who may use the server. A right counts for every name that starts with one of its prefixes."""

    name: str
    password: str = field(default="", repr=False)
    """As `passwords.protect` wrote it; empty: no password opens this user."""
    certificate: str = ""
    """The common name of a client certificate that stands for this user."""
    holds: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    breaks: tuple[str, ...] = ()

    def may_read(self, name: str) -> bool:
        """Whether it may see who holds and awaits this name."""
        return name.startswith(self.reads)

    def sees(self, party: Party | None) -> Party | None:
        """The party, if this user may see it."""
        return party if party is not None and party.name.startswith(self.reads) else None


ANYBODY = User("", holds=("",), reads=("",), breaks=("",))
"""Who everybody is where there are no users: may do everything."""
NOBODY = User("")
"""Who one is before a login that is needed."""


def parse(name: str, settings: Mapping[str, Any]) -> User:
    """A user out of a configuration. InvalidRequest names what is wrong."""
    where = f"users.{name}"
    unknown = set(settings) - {"password", "certificate", "rights"}
    if unknown:
        raise InvalidRequest(where, sorted(unknown)[0], "a user has password, certificate and rights")
    password, certificate = settings.get("password", ""), settings.get("certificate", "")
    if not isinstance(password, str) or (password and not passwords.well_formed(password)):
        raise InvalidRequest(f"{where}.password", "…", "write what 'holdfast serve --protect-password' prints")
    if not isinstance(certificate, str):
        raise InvalidRequest(f"{where}.certificate", certificate, "the common name of a certificate is text")
    if not password and not certificate:
        raise InvalidRequest(where, name, "a user needs a password or a certificate")
    entries = settings.get("rights", [])
    if not isinstance(entries, list):
        raise InvalidRequest(f"{where}.rights", entries, "it is a list of rights")
    rights: dict[str, list[str]] = {right: [] for right in RIGHTS}
    for entry in entries:
        prefix, may = (entry.get("prefix"), entry.get("may")) if isinstance(entry, dict) else (None, None)
        known = isinstance(may, list) and all(isinstance(right, str) and right in RIGHTS for right in may)
        if not isinstance(prefix, str) or not known or len(entry) != 2:
            rule = 'a right is { prefix = "db/", may = ["hold", "read", "break"] }'
            raise InvalidRequest(f"{where}.rights", entry, rule)
        for right in may or ():
            rights[right].append(prefix)
    # Whoever makes holders let go sees who they are, and when they have.
    rights[READ] += rights[BREAK]
    return User(name, password, certificate, *(tuple(rights[right]) for right in (HOLD, READ, BREAK)))


class Users:
    """All users. Without any, everybody may do everything."""

    def __init__(self, users: Mapping[str, User] | None = None) -> None:
        self.by_name = dict(users or {})
        self.by_certificate = {user.certificate: user for user in self.by_name.values() if user.certificate}

    @property
    def required(self) -> bool:
        """Whether one has to log in."""
        return bool(self.by_name)

    @property
    def at_first(self) -> User:
        """Who a new connection speaks as."""
        return NOBODY if self.by_name else ANYBODY

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Users:
        """The users of a configuration."""
        for name, entry in settings.items():
            if not isinstance(entry, dict):
                raise InvalidRequest(f"users.{name}", entry, "a user is a table with password and rights")
        if "" in settings:
            # Nobody has this name: it is that of all who have not logged in.
            raise InvalidRequest("users", "", "a user has a name")
        users = cls({name: parse(name, entry) for name, entry in settings.items()})
        for user in users.by_name.values():
            other = users.by_certificate.get(user.certificate, user)
            if other is not user:
                rule = f"it stands for {other.name} too; a certificate is one user's"
                raise InvalidRequest(f"users.{user.name}.certificate", user.certificate, rule)
        return users

    def check_without_certificates(self) -> None:
        """InvalidRequest for a user that nobody could be where clients are not asked for certificates."""
        for user in self.by_name.values():
            if not user.password:
                rule = "nobody can log in by it: clients are asked for a certificate only with tls.client_ca"
                raise InvalidRequest(f"users.{user.name}.certificate", user.certificate, rule)
