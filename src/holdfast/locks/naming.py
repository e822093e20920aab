"""Lock names from a call's arguments, for the decorator."""

from __future__ import annotations

import inspect
import string
from collections.abc import Callable
from typing import Any

from holdfast.core.names import check_name
from holdfast.errors import InvalidRequest


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
            raise InvalidRequest("name", template, f"{function.__name__}() has no argument {first!r} (it has: {known})")

    def name(*args: Any, **kwargs: Any) -> str:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return check_name(template.format(**bound.arguments))

    return name
