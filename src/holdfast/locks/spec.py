"""What kind of lock is asked for, checked before anything is sent."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from inspect import iscoroutinefunction
from typing import Any, TypedDict

from holdfast.core.names import check_name, fits
from holdfast.errors import InvalidRequest
from holdfast.model import MAX_TOKEN, Mode, Place
from holdfast.runtime.io import Io

MOST_PERMITS = 1_000_000
LONGEST_NOTE = 4096


LONGEST = 10 * 365 * 86_400.0
"""Ten years, in seconds. No engine counts time further ahead."""
SHORTEST_KEEP = 0.001


def check_seconds(argument: str, value: object, *, least: float = 0.0, most: float = LONGEST) -> float | None:
    """A number of seconds, or None."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise InvalidRequest(argument, value, "seconds are a number, or None")
    if value < least:
        raise InvalidRequest(argument, value, f"it is at least {least:g} s")
    if value == math.inf:
        return None
    if value > most:
        longest = "ten years" if most == LONGEST else f"{most:.0f} s"
        raise InvalidRequest(argument, value, f"it is {longest} at most, or None for no limit")
    return float(value)


def check_count(argument: str, value: object, rule: str, *, least: int = 1) -> int:
    """A whole number that every engine can keep; `rule` says what it counts."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_TOKEN:
        raise InvalidRequest(argument, value, rule)
    return value


def check_keep(value: object) -> float | None:
    """How long something is kept, or None for ever."""
    return check_seconds("keep", value, least=SHORTEST_KEEP)


def check_awaited(io: Io, **callbacks: object) -> None:
    """Refuse a callback that has to be awaited, where nothing is: a blocking client would never run it."""
    for argument, callback in callbacks.items():
        if callback is None or io.awaits:
            continue
        # An object is called by a method of its class.
        if any(map(iscoroutinefunction, (callback, vars(type(callback)).get("__call__")))):
            rule = "a blocking client cannot await it: give it a plain function, or use holdfast.aio"
            raise InvalidRequest(argument, callback, rule)


@dataclass(frozen=True, slots=True)
class Spec:
    """A lock as the user described it."""

    kind: str
    name: str
    mode: Mode = "exclusive"
    subtree: bool = False
    limit: int = 0
    wait: float | None = None
    reentrant: bool = False
    max_hold: float | None = None
    on_lost: Callable[[Any], object] | None = None
    note: str = ""
    on_wait: Callable[[Place], object] | None = None
    """Told of the place in line whenever it is known anew."""

    def shared(self) -> Spec:
        """The same for reading."""
        return replace(self, mode="shared")


class Options(TypedDict, total=False):
    """What every front that holds something takes."""

    wait: float | None
    """How long to stand in line; None for ever."""
    reentrant: bool
    """Whether an owner that holds it may take it again."""
    max_hold: float | None
    """When a hold that lasts too long is ended."""
    on_lost: Callable[[Any], object] | None
    """Called with the grant when it is lost."""
    note: str | None
    """What people see beside the owner."""
    on_wait: Callable[[Place], object] | None
    """Called with the place in line while it waits."""


def make_spec(
    kind: str,
    name: str,
    *,
    mode: Mode = "exclusive",
    subtree: bool = False,
    limit: int | None = None,
    wait: float | None = None,
    reentrant: bool = False,
    max_hold: float | None = None,
    on_lost: Callable[[Any], object] | None = None,
    note: str | None = None,
    on_wait: Callable[[Place], object] | None = None,
) -> Spec:
    """A spec whose every part is valid; InvalidRequest otherwise."""
    check_name(name)
    if (limit is not None or kind == "semaphore") and (
        isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST_PERMITS
    ):
        raise InvalidRequest("limit", limit, f"a semaphore has 1 to {MOST_PERMITS} permits")
    for argument, callback in (("on_lost", on_lost), ("on_wait", on_wait)):
        if callback is not None and not callable(callback):
            raise InvalidRequest(argument, callback, "it is called, so it has to be a function")
    if note is not None and not fits(note, LONGEST_NOTE):
        raise InvalidRequest("note", note, f"a note is text of at most {LONGEST_NOTE} bytes of UTF-8")
    return Spec(
        kind=kind,
        name=name,
        mode=mode,
        subtree=bool(subtree),
        limit=limit or 0,
        wait=check_seconds("wait", wait),
        reentrant=bool(reentrant),
        max_hold=check_seconds("max_hold", max_hold, least=0.1),
        on_lost=on_lost,
        note=note or "",
        on_wait=on_wait,
    )
