"""What a window of the log came to."""

from __future__ import annotations

import pytest

from holdfast.server.codec import Record
from holdfast.server.window import Key, Span, Window

MANY = 1_000


def letter(session: str, number: int) -> Record:
    return ("L", session, "w", number, [])


def left(window: Window) -> list[Record]:
    return [record for _, record in window.records()]


def test_what_has_ended_is_not_in_it_and_what_others_have_is() -> None:
    window = Window()
    for session in ("one", "two"):
        window.absorb([("S", session), ("W", session, "w"), ("T", f"{session}-1", session)])
        window.absorb([letter(session, number) for number in (1, 2, 3)])

    window.absorb([("l", "one", "w", 2), ("t", "two", "two-1"), ("w", "two", "w")])
    assert left(window) == [
        ("S", "one"), ("S", "two"), ("T", "one-1", "one"), ("W", "one", "w"), letter("one", 3),
    ]  # fmt: skip

    window.absorb([("s", "one")])
    assert left(window) == [("S", "two")]


@pytest.mark.parametrize("end", [("l", "quick", "w", 1), ("w", "quick", "w"), ("s", "quick")])
def test_an_end_looks_at_what_ends_and_not_at_what_others_have_not_fetched(
    monkeypatch: pytest.MonkeyPatch, end: Record
) -> None:
    looks: list[Key] = []
    covers = Span.covers

    def counted(span: Span, key: Key) -> bool:
        looks.append(key)
        return covers(span, key)

    monkeypatch.setattr(Span, "covers", counted)
    window = Window()
    window.absorb([letter("silent", number) for number in range(MANY)])
    window.absorb([letter("quick", 1)])

    window.absorb([end])

    assert [key[2] for key in looks] == ["quick"]
    assert len(left(window)) == MANY
