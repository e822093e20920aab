"""Names in order: a listing shows what it should, and looks at little else."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import names
from holdfast.core.table import directory
from holdfast.core.table.directory import Directory
from tests.core.test_ends import lines_run

NAMES = st.sampled_from(["a", "a/b", "a/b/c", "a-b", "a.b", "ab", "b", "b/c", "é"])
KINDS = st.sampled_from(["x.lock", "x.semaphore", "y.lock"])


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "CHUNK", 2)


@pytest.mark.usefixtures("small_chunks")
@given(
    st.lists(st.tuples(KINDS, NAMES), max_size=80),
    st.integers(0, 5),
    st.sampled_from(["", "a", "a/", "a/b", "b/"]),
    st.sampled_from(["x.", "y.", "x.lock"]),
    st.lists(st.sampled_from(["", "a", "a/", "a/b", "b"]), max_size=3),
    st.tuples(KINDS, NAMES) | st.just(("", "")),
)
def test_it_shows_what_a_look_at_all_of_them_would(
    toggled: list[tuple[str, str]],
    patience: int,
    prefix: str,
    kind: str,
    starts: list[str],
    after: tuple[str, str],
) -> None:
    found, plain = Directory(), set[tuple[str, str]]()
    found.patience = patience
    for key in toggled:
        if key in plain:
            found.drop(key)
        else:
            found.add(key)
        plain ^= {key}

    assert list(found.shown(kind, prefix, tuple(starts), after)) == sorted(
        key
        for key in plain
        if (key[0].startswith(kind) if kind.endswith(".") else key[0] == kind)
        and names.matches(prefix, key[1])
        and key[1].startswith(tuple(starts))
        and key > after
    )
    assert len(found) == len(plain)


def test_a_page_of_very_many_names_is_found_without_a_look_at_the_others() -> None:
    found = Directory()
    for number in range(20_000):
        found.add(("x.lock", f"n{number:05}"))
    found.settle()

    assert list(islice(found.shown("x.", "", ("",), ("x.lock", "n10000")), 2)) == [
        ("x.lock", "n10001"),
        ("x.lock", "n10002"),
    ]
    assert lines_run(lambda: list(islice(found.shown("x.", "", ("",), ("x.lock", "n10000")), 2))) < 100
    assert lines_run(lambda: list(found.shown("x.", "n19999", ("n1", "x")))) < 100


def test_names_that_come_and_go_are_never_sorted_in() -> None:
    found = Directory()
    for number in range(5_000):
        found.add(("x.lock", f"n{number}"))
        found.drop(("x.lock", f"n{number}"))

    assert not found._chunks
    assert not len(found)


def test_very_many_kinds_are_looked_through_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "MOST_KINDS", 3)
    found = Directory()
    for number in range(5):
        found.add((f"x.{number}", "n"))

    first = list(found.shown("x.", "", ("",)))
    assert first[:3] == [("x.0", "n"), ("x.1", "n"), ("x.2", "n")]
    assert first[3][1] == ""
    assert list(found.shown("x.", "", ("",), first[3])) == [("x.3", "n"), ("x.4", "n")]
