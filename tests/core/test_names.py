"""What may name a lock, and how paths cover each other."""

from __future__ import annotations

import pytest

from holdfast.core import names
from holdfast.errors import InvalidRequest


@pytest.mark.parametrize(
    "name", ["k", "invoice:42", "db/users/7", "a b", "ü", "x" * 512, "é" * 256, "...", "a/..b", "-"]
)
def test_a_good_name_comes_back_as_it_is(name: str) -> None:
    assert names.check_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "/", "/a", "a/", "a//b", ".", "..", "a/./b", "a/..", "x" * 513, "é" * 257, "a\nb", "a\x00", "\x7f", "\x85",
     "\u2028", "\ud800", b"k", None, 7],
)  # fmt: skip
def test_a_bad_name_is_refused(name: object) -> None:
    with pytest.raises(InvalidRequest):
        names.check_name(name)


@pytest.mark.parametrize("prefix", ["", "db", "db/", "db/users/"])
def test_a_good_prefix_comes_back_as_it_is(prefix: str) -> None:
    assert names.check_prefix(prefix) == prefix


@pytest.mark.parametrize("prefix", ["/", "db//", "../", None, "a\n/"])
def test_a_bad_prefix_is_refused(prefix: object) -> None:
    with pytest.raises(InvalidRequest):
        names.check_prefix(prefix)


def test_ancestors_go_from_the_root_down() -> None:
    assert names.ancestors("a/b/c") == ("a", "a/b")
    assert names.ancestors("a") == ()


@pytest.mark.parametrize(
    ("path", "name", "covered"),
    [("a", "a", True), ("a", "a/b", True), ("a", "a/b/c", True), ("a", "ab", False), ("a/b", "a", False)],
)
def test_a_path_covers_itself_and_what_lies_under_it(path: str, name: str, covered: bool) -> None:
    assert names.covers(path, name) is covered


@pytest.mark.parametrize(
    ("prefix", "shown"),
    [("", {"db", "db/users", "dbx"}), ("db", {"db", "db/users"}), ("db/", {"db/users"}), ("d", set())],
)
def test_a_prefix_shows_whole_segments(prefix: str, shown: set[str]) -> None:
    assert {name for name in ("db", "db/users", "dbx") if names.matches(prefix, name)} == shown


def test_names_that_can_conflict_share_a_counter() -> None:
    assert len({names.bucket(name) for name in ("db", "db/users", "db/users/7")}) == 1
    assert len({names.bucket(f"k{number}") for number in range(10_000)}) == names.BUCKETS
