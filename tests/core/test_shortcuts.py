"""The shortcuts do what the steps that they stand for do."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.table import Dictionary, apply, shortcuts
from holdfast.core.table.commands import Break, Done, Enter, Leave, Open, Release, Subscribe
from holdfast.core.table.rows import Session
from holdfast.model import Claim

IDS = st.integers(0, 5)
CLAIMS = st.builds(
    lambda session, number, name, mode, subtree, limit, waits, reentrant, hold: Claim(
        f"s{session}-{number}", f"s{session}", f"s{session}/x", "x.semaphore" if limit else "x.lock", name,
        "exclusive" if limit else mode, subtree and not limit, limit, waits, reentrant, hold,
    ),
    st.integers(0, 2), IDS, st.sampled_from(["a", "b", "a/b"]), st.sampled_from(["exclusive", "shared"]),
    st.booleans(), st.sampled_from([0, 0, 0, 1]), st.booleans(), st.booleans(), st.sampled_from([None, None, 3.0]),
)  # fmt: skip
COMMANDS = st.one_of(
    CLAIMS.map(Enter),
    CLAIMS.map(Enter),
    CLAIMS.map(Release),
    CLAIMS.map(Release),
    st.builds(Leave, CLAIMS, st.booleans()),
    st.just(Break("x.lock", "a", force=True)),
    st.integers(0, 2).map(lambda number: Open(Session(f"s{number}", 20.0, 0.0))),
    st.just(Subscribe("s0", "w", "x.", "")),
)


def shortly(table: Dictionary, command: Any, now: float) -> tuple[Any, Any] | None:
    if isinstance(command, Enter):
        return shortcuts.take(table, command.claim, now)
    row = table.rows.get(command.claim.id) if isinstance(command, Release) else None
    changes = None if row is None else shortcuts.give_back(table, row, now)
    return None if changes is None else (Done(), changes)


@given(st.lists(st.tuples(COMMANDS, st.integers(0, 4)), max_size=40))
def test_a_shortcut_is_the_step_that_it_stands_for(steps: list[tuple[Any, int]]) -> None:
    plain, short = Dictionary(7), Dictionary(7)
    now = 0.0
    for number in range(2):
        for table in (plain, short):
            apply(Open(Session(f"s{number}", 20.0, 0.0)), now, table.answer, table.put)
    for command, pause in steps:
        now += pause
        if isinstance(command, Release) and command.claim.id in plain.rows:
            # As the server does it: by the id alone.
            command = Release(plain.rows[command.claim.id].claim)
        expected = apply(command, now, plain.answer, plain.put)
        found = shortly(short, command, now)
        if found is None:
            outcome = apply(command, now, short.answer, short.put)
            found = outcome.reply, outcome.changes

        assert found == (expected.reply, expected.changes)
        for part in ("rows", "alone", "counters", "mortal", "claims_of", "by_session", "waiting_of", "under"):
            assert getattr(short, part) == getattr(plain, part), part
        assert [*short.directory.since(("", ""))] == [*plain.directory.since(("", ""))]


def test_a_plain_pair_takes_both_of_them() -> None:
    table = Dictionary(7)
    apply(Open(Session("s0", 20.0, 0.0)), 0.0, table.answer, table.put)

    assert shortcuts.take(table, Claim("s0-1", "s0", "s0/x", "x.lock", "a"), 1.0) is not None
    assert shortcuts.give_back(table, table.rows["s0-1"], 2.0) is not None
    assert not table.rows
    assert not len(table.directory)
