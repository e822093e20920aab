"""Finding the engine that a URL names."""

from __future__ import annotations

from collections.abc import Callable, Set
from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.core.urls import Url
from holdfast.engines.engine import Engine
from holdfast.errors import InvalidRequest

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "holdfast.engines"
OWN = {
    "etcd": "holdfast.engines.etcd.engine:EtcdEngine",
    "holdfast": "holdfast.engines.holdfast.engine:HoldfastEngine",
    "memory": "holdfast.engines.memory:MemoryEngine",
    "postgresql": "holdfast.engines.postgres.engine:PostgresEngine",
    "redis": "holdfast.engines.redis.engine:RedisEngine",
    "rediss": "holdfast.engines.redis.engine:RedisEngine",
    "redlock": "holdfast.engines.redlock.engine:RedlockEngine",
    "redis+cluster": "holdfast.engines.redis.engine:RedisEngine",
    "redis+sentinel": "holdfast.engines.redis.engine:RedisEngine",
    "sqlite": "holdfast.engines.sqlite.engine:SqliteEngine",
    "zookeeper": "holdfast.engines.zookeeper.engine:ZooKeeperEngine",
}
"""What pyproject.toml registers for Holdfast itself. Of these nobody has to ask the packages that are installed, which
takes as long as a third of everything else until a client is connected."""
EXTRAS = {"rediss": "redis", "redlock": "redis"}
"""Schemes whose driver comes with the extra of another."""
PACKAGES = {
    "google": "etcd", "hiredis": "holdfast", "hpack": "etcd", "kazoo": "zookeeper", "orjson": "server",
    "prometheus_client": "server", "psycopg": "postgresql", "redis": "redis", "uvloop": "server",
}  # fmt: skip
"""Packages that a part of Holdfast imports, and the extra that brings each."""
LENDERS = "holdfast.lenders"
"""Who can read the settings of another library's client: by the name of its package, a function that takes the
client and gives a Url, or None for something else of that package."""


_found: dict[str, EntryPoint] = {}
"""What was installed when somebody last looked: a look reads a file of every package there is."""


def entry_points(**wanted: str) -> Any:
    """What installed packages have registered."""
    from importlib import metadata

    return metadata.entry_points(**wanted)


def schemes() -> dict[str, EntryPoint]:
    """Every scheme that is installed here."""
    return {point.name: point for point in entry_points(group=GROUP)}


def engine_class(url: Url) -> type[Engine]:
    """The engine for a URL; a clear word if the scheme is unknown or its driver is missing."""
    try:
        found = _load(url.scheme)
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


def _load(scheme: str) -> type[Engine]:
    global _found
    if (own := OWN.get(scheme)) is not None:
        module, _, name = own.partition(":")
        engine: type[Engine] = getattr(import_module(module), name)
        return engine
    if scheme not in _found:
        _found = schemes()
    if scheme not in _found:
        raise InvalidRequest("url scheme", scheme, f"no engine has it; {_hint(scheme, OWN.keys() | _found.keys())}")
    loaded: type[Engine] = _found[scheme].load()
    return loaded


def _hint(scheme: str, known: Set[str]) -> str:
    from difflib import get_close_matches

    if near := get_close_matches(scheme, sorted(known), 1, cutoff=0.5):
        return f"did you mean {near[0]}://?"
    return f"known: {', '.join(f'{name}://' for name in sorted(known))}"


def how_to_get(error: ModuleNotFoundError) -> str:
    """A package that is not installed, and what installs it."""
    extra = PACKAGES.get((error.name or "").partition(".")[0])
    return f"{error.name!r}: pip install 'holdfast[{extra}]'" if extra else f"the package {error.name!r}"


def lent_url(lender: object) -> Url:
    """The settings of an existing client of another library, as a URL."""
    package = type(lender).__module__.partition(".")[0]
    for point in entry_points(group=LENDERS, name=package):
        borrow: Callable[[object], Url | None] = point.load()
        url = borrow(lender)
        if url is not None:
            return url
    known = ", ".join(sorted(point.name for point in entry_points(group=LENDERS)))
    raise InvalidRequest("url", type(lender).__name__, f"it is an engine URL, or an existing client of one of: {known}")
