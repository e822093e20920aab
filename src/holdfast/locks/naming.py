"""Lock names from a call's arguments, for the decorator."""

from __future__ import annotations

import inspect
import string
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Generator, Iterator
from concurrent.futures import Future
from contextlib import aclosing, asynccontextmanager, closing, contextmanager
from types import CoroutineType
from typing import Any, TypeVar

from holdfast.core.names import check_name
from holdfast.errors import InvalidRequest

R = TypeVar("R")


@contextmanager
def _body_of_a_with() -> Iterator[None]:
    yield


@asynccontextmanager
async def _body_of_an_async_with() -> AsyncIterator[None]:
    yield


LATER = (
    Awaitable, Generator, AsyncIterator, Future, type(_body_of_a_with()), type(_body_of_an_async_with()),
)  # fmt: skip
"""What runs a body after the function has returned: of a `contextmanager`, in a caller's `with`."""


def shown(function: object) -> str:
    """A function's name, for an error."""
    return str(getattr(function, "__name__", type(function).__name__))


def check_function(function: object, *, awaited: bool) -> None:
    """Refuse what a decorator cannot run under a lock: InvalidRequest, when it is applied."""
    if isinstance(function, classmethod | staticmethod):
        what = type(function).__name__
        raise InvalidRequest("function", shown(function), f"put @{what} above this decorator, not under it")
    if not callable(function):
        raise InvalidRequest("function", shown(function), "it decorates a function")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        rule = "a generator runs after the lock is released: use a `with` in it"
        raise InvalidRequest("function", shown(function), rule)
    if inspect.iscoroutinefunction(function) and not awaited:
        raise InvalidRequest("function", shown(function), "a coroutine needs a client of holdfast.aio")
    if not inspect.iscoroutinefunction(function) and awaited:
        raise InvalidRequest("function", shown(function), "a plain function needs holdfast.connect()")


def check_result(function: object, result: R) -> R:
    """What a function returned under its lock; InvalidRequest if its body would only run now."""
    if _runs_later(result):
        # Nothing of it shall run now, as far as it has not begun.
        if isinstance(result, CoroutineType):
            result.close()
        elif callable(cancel := getattr(result, "cancel", None)):
            cancel()  # a task, or a future of any library
        rule = f"it returned a {type(result).__name__.lstrip('_')}, which would run after the lock is released"
        raise InvalidRequest("function", shown(function), rule)
    return result


def _runs_later(result: object) -> bool:
    if isinstance(result, closing | aclosing):
        return _runs_later(getattr(result, "thing", None))
    if isinstance(result, LATER):
        return True
    # Such as `map`: a function of the caller's makes each item when it is asked for. A file only reads.
    return isinstance(result, Iterator) and not isinstance(result, Container) and not hasattr(result, "read")


def namer(template: str, function: Callable[..., Any], *, after: int = 0) -> Callable[..., str]:
    """What makes a name from the arguments of `function`; checked when the decorator is applied.

    The first `after` arguments are not the caller's, and have no part in it.
    """
    signature = inspect.signature(function)
    signature = signature.replace(parameters=list(signature.parameters.values())[after:])
    try:
        fields = [field for _, field, _, _ in string.Formatter().parse(template)]
    except (TypeError, ValueError) as error:
        raise InvalidRequest("name", template, f"it is no template: {error}") from error
    for field in fields:
        if field is None:
            continue
        first = field.split(".")[0].split("[")[0]
        if first not in signature.parameters:
            known = ", ".join(signature.parameters) or "none"
            raise InvalidRequest("name", template, f"{shown(function)}() has no argument {first!r} (it has: {known})")

    def name(*args: Any, **kwargs: Any) -> str:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return check_name(template.format(**bound.arguments))

    return name
