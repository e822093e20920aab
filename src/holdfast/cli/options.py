"""Options that several commands share, and the client that they make."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import inf
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

import holdfast
from holdfast.api.settings import DEFAULT_NAMESPACE, DEFAULT_TTL
from holdfast.errors import HoldfastError

F = TypeVar("F", bound=Callable[..., Any])

KINDS = ("lock", "semaphore", "election", "barrier", "once", "partition")
"""The kinds of claims that people look at; `lock` is lock and rwlock alike."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class Seconds(click.ParamType):  # type: ignore[type-arg]
    """A duration: seconds, or a number with one of the units ms, s, m, h."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*(ms|s|m|h)?", str(value).strip())
        seconds = inf if found is None else float(found[1]) * _UNITS[found[2] or "s"]
        if seconds == inf:  # as a number with hundreds of digits is
            self.fail(f"{value!r} is not a duration: 5, 0.5, 500ms, 2m or 1h", param, ctx)
        return seconds


SECONDS = Seconds()

_URL_HELP = "Engine URL.  [default: $HOLDFAST_URL, else this user's SQLite file]"
_SPACE_HELP = "Locks of different namespaces never meet."


def engine_options(command: F) -> F:
    """Where the locks are: --url and --namespace."""
    url = click.option("--url", metavar="URL", help=_URL_HELP)
    namespace = click.option("--namespace", default=DEFAULT_NAMESPACE, show_default=True, help=_SPACE_HELP)
    return url(namespace(command))


def json_option(command: F) -> F:
    """--json. `main` reports errors as JSON too, if it is among the arguments."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def kind_option(default: str | None, text: str) -> Callable[[F], F]:
    """--kind, for names that several kinds of locks may have."""
    return click.option("--kind", type=click.Choice(KINDS), default=default, show_default=bool(default), help=text)


def connect(url: str | None, namespace: str, *, ttl: float = DEFAULT_TTL, app: str | None = None) -> holdfast.Client:
    """A client for one command."""
    return holdfast.connect(url, ttl=ttl, namespace=namespace, app="holdfast" if app is None else app)


def complete_name(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names in use that begin so, for the shell. An engine that cannot be reached offers none."""
    url, namespace = ctx.params.get("url"), ctx.params.get("namespace") or DEFAULT_NAMESPACE
    try:
        with connect(url, namespace) as client:
            names = {info.name for info in client.list()}
    except HoldfastError:
        return []
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


def name_argument(command: F) -> F:
    """NAME, completed from the names in use."""
    return click.argument("name", shell_complete=complete_name)(command)


def prefix_argument(command: F) -> F:
    """PREFIX, completed from the names in use."""
    return click.argument("prefix", default="", shell_complete=complete_name)(command)
