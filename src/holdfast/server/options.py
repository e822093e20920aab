"""Options of a store, taken from its URL."""

from __future__ import annotations

from holdfast.core.urls import Url
from holdfast.errors import InvalidRequest


def whole(url: Url, option: str, default: int) -> int:
    """An option that is a whole number."""
    text = url.options.get(option, str(default))
    if not text.isdigit():
        raise InvalidRequest(f"url option {option}", text, "it is a whole number")
    return int(text)
