"""What a writer presents to a fence: a resource key and a token. Pure: every fence starts here.

A resource key is a lock's name, or `name//slot` for one permit of a semaphore. No lock can have
that second form as its name, because a name has no empty path segment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, TypeAlias
from urllib.parse import quote, unquote_to_bytes

from holdfast.core.names import check_name
from holdfast.errors import InvalidRequest

TOKENS_END = 2**53
"""Every token is smaller: it survives a double, which is all that Lua and JSON have."""

RESOURCE_HEADER = "Fencing-Resource"
TOKEN_HEADER = "Fencing-Token"

_HEADER = re.compile(r"([0-9]{1,16})(?:[ \t]*;[ \t]*(shared))?", re.ASCII)
_SLOT = re.compile(r"(?:0|[1-9][0-9]{0,8})", re.ASCII)
_SLOT_MARK = "//"


class GrantLike(Protocol):
    """What a fence needs to know of a grant, blocking or asyncio."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def token(self) -> int: ...
    @property
    def slot(self) -> int | None: ...
    @property
    def shared(self) -> bool: ...
    @property
    def subtree(self) -> bool: ...
    def check(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Presented:
    """A token as it is shown to a fence. Every fence takes it, so it can be handed on."""

    resource: str
    token: int
    shared: bool = False

    @property
    def header(self) -> str:
        """The token as a `Fencing-Token` header has it: `17`, or `17;shared`."""
        return f"{self.token};shared" if self.shared else str(self.token)

    @property
    def headers(self) -> dict[str, str]:
        """The two headers of a fenced request."""
        return {RESOURCE_HEADER: quote(self.resource, safe=""), TOKEN_HEADER: self.header}

    def is_stale(self, highest: int, *, once: bool = False) -> bool:
        """Whether a resource that has seen `highest` must refuse it. `once` refuses an equal one too."""
        return highest > self.token or (once and highest == self.token)


Token: TypeAlias = "GrantLike | Presented | Mapping[str, GrantLike] | int | str"
"""A grant, what a middleware handed on, what `lock_all` gave, a number, or a header (`17;shared`)."""


def present(token: Token, resource: str | None = None, *, once: bool = False) -> Presented:
    """Turn whatever carries a token into what a fence compares.

    A grant that was lost or released is refused here (LockLost, NotHeld), before anything is sent.
    """
    if isinstance(token, int | str):
        if resource is None:
            raise InvalidRequest("resource", None, "a bare token does not say what it is for: give the resource")
        number, shared = (check_token(token), False) if isinstance(token, int) else parse_token(token)
        presented = Presented(check_resource(resource), number, shared)
    elif isinstance(token, Presented):
        key = token.resource if resource is None else resource
        presented = Presented(check_resource(key), check_token(token.token), token.shared)
    elif isinstance(token, Mapping):
        presented = _present_grants(token, resource)
    elif hasattr(token, "check") and hasattr(token, "slot"):
        token.check()
        key = default_resource(token) if resource is None else resource
        presented = Presented(check_resource(key), check_token(token.token), token.shared)
    else:
        raise InvalidRequest("grant", token, "give a grant, a token, or a header such as '17;shared'")
    if once and presented.shared:
        raise InvalidRequest("once", True, "a shared token leaves no trace, so nothing could tell the second time")
    return presented


def default_resource(grant: GrantLike) -> str:
    """The resource key of a grant when none is given: its name; for a semaphore, name and slot."""
    if grant.subtree:
        raise InvalidRequest(
            "resource",
            None,
            f"the grant covers everything under {grant.name!r}: say which resource this write goes to, "
            "by the same key that holders of locks below it use",
        )
    return grant.name if grant.slot is None else f"{grant.name}{_SLOT_MARK}{grant.slot}"


def _present_grants(grants: Mapping[str, GrantLike], resource: str | None) -> Presented:
    """One of the grants of `lock_all`: each has a token of its own, and they cannot be compared."""
    if resource is None:
        raise InvalidRequest(
            "resource", None, f"{len(grants)} locks are held together: say which resource this write goes to"
        )
    if resource not in grants:
        raise InvalidRequest(
            "resource",
            resource,
            "none of the locks has this name: pass the grant that guards it, as in grants[name], resource=…",
        )
    return present(grants[resource], resource)


def check_resource(resource: object) -> str:
    """Return `resource` if it can be a resource key: a name, or `name//slot`."""
    return _checked(resource) if type(resource) is str else check_name(resource, "resource")


@lru_cache(maxsize=1024)
def _checked(resource: str) -> str:
    """The same for a string. A writer uses few keys, each of them many times."""
    name, mark, slot = resource.rpartition(_SLOT_MARK)
    if mark and _SLOT.fullmatch(slot):
        check_name(name, "resource")
        return resource
    return check_name(resource, "resource")


def check_token(token: object) -> int:
    """Return `token` if it can be one: an integer from 1 to 2^53 - 1."""
    if type(token) is not int or not 1 <= token < TOKENS_END:
        raise InvalidRequest("token", token, "a token is an integer from 1 to 2^53 - 1")
    return token


def parse_token(header: str) -> tuple[int, bool]:
    """The number in a `Fencing-Token` header, and whether it is a shared one."""
    matched = _HEADER.fullmatch(header.strip(" \t"))
    if matched is None:
        raise InvalidRequest(TOKEN_HEADER, header, "a token is written as 17, or as 17;shared")
    return check_token(int(matched[1])), matched[2] is not None


def parse_resource(header: str) -> str:
    """The resource key in a `Fencing-Resource` header."""
    try:
        return check_resource(unquote_to_bytes(header.strip(" \t")).decode())
    except UnicodeDecodeError as error:
        raise InvalidRequest(RESOURCE_HEADER, header, "a resource is percent-encoded UTF-8") from error
