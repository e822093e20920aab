"""Which claims exclude each other: a table of cases, and all pairs against the definition."""

from __future__ import annotations

from itertools import product

import pytest

from holdfast.core.conflicts import conflict
from holdfast.model import Claim, Mode
from tests.core.reference import exclude

MODES: tuple[Mode, ...] = ("exclusive", "shared")


def claim(name: str, mode: Mode = "exclusive", subtree: bool = False, kind: str = "lock") -> Claim:
    return Claim("s-1", "s", "s", kind, name, mode, subtree)


@pytest.mark.parametrize(
    ("one", "other", "exclusive"),
    [
        (claim("k"), claim("k"), True),
        (claim("k"), claim("j"), False),
        (claim("k"), claim("k", kind="election"), False),
        (claim("k", "shared"), claim("k"), True),
        (claim("k", "shared"), claim("k", "shared"), False),
        (claim("a"), claim("a/b"), False),
        (claim("a", subtree=True), claim("a/b/c"), True),
        (claim("a", subtree=True), claim("ab"), False),
        (claim("a/b", subtree=True), claim("a"), False),
        (claim("a/b", subtree=True), claim("a", subtree=True), True),
        (claim("a", "shared", subtree=True), claim("a/b", "shared"), False),
    ],
)
def test_two_claims_exclude_each_other_or_not(one: Claim, other: Claim, exclusive: bool) -> None:
    assert conflict(one, other) is exclusive
    assert conflict(other, one) is exclusive


def test_every_pair_is_as_defined() -> None:
    names = ("a", "a/b", "a/b/c", "a/bc", "ab", "b")
    claims = [claim(*what) for what in product(names, MODES, (False, True))]
    for one, other in product(claims, claims):
        assert conflict(one, other) is exclude(one, other), (one, other)
