"""Text from outside, made safe to show: names, notes and apps come from other clients.

A control character moves the cursor or renames the window, a bidirectional override reorders what
follows, and a line break forges a line. `printable` and `one_line` show such characters as escapes.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable
from typing import Any

_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories: control, format, surrogate, line separator, paragraph separator."""
_BREAKS = re.compile(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*")


def printable(text: str) -> str:
    """The text with each unsafe character as its Python escape."""
    if text.isprintable():
        return text
    return "".join(repr(char)[1:-1] if unicodedata.category(char) in _UNSAFE else char for char in text)


def one_line(text: str) -> str:
    """The same for a message that may have several lines, such as a driver's: line breaks become spaces."""
    return text if text.isprintable() else printable(_BREAKS.sub(" ", text.strip()))


def as_json(value: object, default: Callable[[Any], object] | None = None) -> str:
    """One JSON document on one line, with each unsafe character as its JSON escape: the data are the same.

    `default` turns what JSON does not know into what it knows. Without it, sets become sorted lists.
    """
    document = json.dumps(value, ensure_ascii=False, default=default or _plain)
    if document.isprintable():
        return document
    return "".join(json.dumps(char)[1:-1] if unicodedata.category(char) in _UNSAFE else char for char in document)


def _plain(value: Any) -> object:
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"{value!r} has no place in JSON")
