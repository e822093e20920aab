"""Finding the engine that a URL names."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points

from holdfast.core.urls import Url
from holdfast.engines.engine import Engine
from holdfast.errors import InvalidRequest

GROUP = "holdfast.engines"
EXTRAS = {"rediss": "redis", "redlock": "redis"}
"""Schemes whose driver comes with the extra of another."""
LENDERS = "holdfast.lenders"
"""Who can read the settings of another library's client: by the name of its package, a function that takes the
client and gives a Url, or None for something else of that package."""


_found: dict[str, EntryPoint] = {}
"""What was installed when somebody last looked: a look reads a file of every package there is."""


def schemes() -> dict[str, EntryPoint]:
    """Every scheme that is installed here."""
    return {point.name: point for point in entry_points(group=GROUP)}


def engine_class(url: Url) -> type[Engine]:
    """The engine for a URL; a clear word if the scheme is unknown or its driver is missing."""
    global _found
    if url.scheme not in _found:
        _found = schemes()
    known = _found
    point = known.get(url.scheme)
    if point is None:
        near = get_close_matches(url.scheme, known, 1, cutoff=0.5)
        hint = f"did you mean {near[0]}://?" if near else f"known: {', '.join(f'{name}://' for name in sorted(known))}"
        raise InvalidRequest("url scheme", url.scheme, f"no engine has it; {hint}")
    try:
        found: type[Engine] = point.load()
    except ModuleNotFoundError as error:
        family = url.scheme.partition("+")[0]
        extra = EXTRAS.get(family, family)
        raise InvalidRequest(
            "url scheme",
            url.scheme,
            f"its driver {error.name!r} is not installed: pip install 'holdfast[{extra}]'",
        ) from error
    url.check_options(found.options)
    # An engine with several recipes has a class for each.
    choose: Callable[[Url], type[Engine]] | None = getattr(found, "choose", None)
    return found if choose is None else choose(url)


def lent_url(lender: object) -> Url:
    """The settings of an existing client of another library, as a URL."""
    package = type(lender).__module__.partition(".")[0]
    for point in entry_points(group=LENDERS, name=package):
        borrow: Callable[[object], Url | None] = point.load()
        url = borrow(lender)
        if url is not None:
            return url
    known = ", ".join(sorted(point.name for point in entry_points(group=LENDERS)))
    raise InvalidRequest("url", lender, f"it is an engine URL, or an existing client of one of: {known}")
