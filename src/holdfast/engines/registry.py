"""Finding the engine that a URL names."""

from __future__ import annotations

from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points

from holdfast.core.urls import Url
from holdfast.engines.engine import Engine
from holdfast.errors import InvalidRequest

GROUP = "holdfast.engines"


def schemes() -> dict[str, EntryPoint]:
    """Every scheme that is installed here."""
    return {point.name: point for point in entry_points(group=GROUP)}


def engine_class(url: Url) -> type[Engine]:
    """The engine for a URL; a clear word if the scheme is unknown or its driver is missing."""
    known = schemes()
    point = known.get(url.scheme)
    if point is None:
        near = get_close_matches(url.scheme, known, 1, cutoff=0.5)
        hint = f"did you mean {near[0]}://?" if near else f"known: {', '.join(f'{name}://' for name in sorted(known))}"
        raise InvalidRequest("url scheme", url.scheme, f"no engine has it; {hint}")
    try:
        found: type[Engine] = point.load()
    except ModuleNotFoundError as error:
        extra = url.scheme.partition("+")[0]
        raise InvalidRequest(
            "url scheme",
            url.scheme,
            f"its driver {error.name!r} is not installed: pip install 'holdfast[{extra}]'",
        ) from error
    url.check_options(found.options)
    return found
