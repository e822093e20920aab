"""Text from outside is shown without a character that moves the cursor, reorders text or forges a line."""

from __future__ import annotations

import json
import pickle
import sys
import unicodedata

import pytest

from holdfast.errors import EngineUnavailable, HoldfastError, InvalidRequest, NotAcquired
from holdfast.model import Party
from holdfast.text import as_json, one_line, printable

EVERYTHING = "".join(map(chr, range(sys.maxunicode + 1)))
UNSAFE = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def is_safe(text: str) -> bool:
    """Whether no character of a text has a meaning for a terminal."""
    return not any(unicodedata.category(char) in UNSAFE for char in text)


def test_no_unsafe_character_is_left_in_text() -> None:
    assert is_safe(printable(EVERYTHING))
    assert is_safe(one_line(EVERYTHING))


def test_safe_characters_stay_as_they_are() -> None:
    safe = "".join(char for char in EVERYTHING if is_safe(char))

    assert printable(safe) == safe


def test_json_has_no_unsafe_character_and_the_same_data() -> None:
    document = as_json({EVERYTHING: [EVERYTHING, {"b", "a"}]})

    assert is_safe(document)
    # An escaped pair of surrogates is read as one character, so they are looked at one by one.
    without = "".join(char for char in EVERYTHING if unicodedata.category(char) != "Cs")
    assert json.loads(as_json(without)) == without
    assert json.loads(as_json("\udc80")) == "\udc80"


def test_several_lines_become_one() -> None:
    assert one_line("ERROR: no\n  DETAIL: why\u2028\tand\x1b[2J\n") == "ERROR: no DETAIL: why and\\x1b[2J"


@pytest.mark.parametrize(
    "error",
    [
        NotAcquired(
            "k", 1.0,
            holders=[Party("c", "o", "app\x1b[2J\u202e", "host\nFAKE", 1, "", "", 0.0, 0.0, "exclusive")],
        ),
        EngineUnavailable("redis", "\x1b]0;title\x07\nFAKE", "unknown"),
        InvalidRequest("name", "a\x9b31m\u202e", "rule"),
        HoldfastError("\x7f"),
    ],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_the_message_of_an_error_is_safe(error: HoldfastError) -> None:
    assert is_safe(str(error))
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
