"""The shortcuts do what the steps that they stand for do."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.table import Dictionary, apply, shortcuts
from holdfast.core.table.changes import DropRow, PutCounter, PutRow
from holdfast.core.table.commands import Break, Done, Enter, Leave, Open, Release, Subscribe
from holdfast.core.table.rows import Session
from holdfast.model import Claim, Granted

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


def shortly(table: Dictionary, now: float, *commands: Any) -> list[tuple[Any, list[Any]]]:
    """Those that a shortcut was taken for, and what they did: their replies and changes."""
    steps = []
    for command in commands:
        if not isinstance(command, Enter | Release):
            break
        claim = command.claim
        steps.append((claim.session, claim.id, claim if isinstance(command, Enter) else None))
    done: list[PutRow | DropRow] = []
    shortcuts.carry_out(table, steps, now, done)
    return [
        (Granted(change.row.order, None, change.row.claim.max_hold), [PutCounter(0, change.row.order), change])
        if isinstance(change, PutRow)
        else (Done(), [change])
        for change in done
    ]


@given(st.lists(st.tuples(COMMANDS, st.sampled_from([0, 0, 0, 1, 4])), max_size=40))
def test_a_shortcut_is_the_step_that_it_stands_for(given_commands: list[tuple[Any, int]]) -> None:
    plain, short = Dictionary(7), Dictionary(7)
    for number in range(2):
        for table in (plain, short):
            apply(Open(Session(f"s{number}", 20.0, 0.0)), 0.0, table.answer, table.put)
    now = 0.0
    expected: list[tuple[Any, list[Any]]] = []
    for _, together in groupby(accumulated(given_commands), key=itemgetter(1)):
        commands = []
        for command, now in together:
            if isinstance(command, Release) and command.claim.id in plain.rows:
                # As the server does it: by the id alone.
                command = Release(plain.rows[command.claim.id].claim)
            outcome = apply(command, now, plain.answer, plain.put)
            expected.append((outcome.reply, outcome.changes))
            commands.append(command)
        found: list[tuple[Any, list[Any]]] = []
        while len(found) < len(commands):
            found += shortly(short, now, *commands[len(found) :])
            if len(found) < len(commands):
                outcome = apply(commands[len(found)], now, short.answer, short.put)
                found.append((outcome.reply, outcome.changes))

        assert found == expected
        expected.clear()
        for part in ("rows", "alone", "counters", "mortal", "claims_of", "by_session", "usage"):
            assert getattr(short, part) == getattr(plain, part), part
        assert short.rivals.paths == plain.rivals.paths
        assert short.waiting.by_owner == plain.waiting.by_owner
        assert [*short.directory.since(("", ""))] == [*plain.directory.since(("", ""))]


def accumulated(commands: list[tuple[Any, int]]) -> Iterator[tuple[Any, float]]:
    """Commands and the times at which they come, from the pauses between them."""
    now = 0.0
    for command, pause in commands:
        now += pause
        yield command, now


def test_plain_pairs_take_them_all_at_once() -> None:
    table = Dictionary(7)
    for session in ("s0", "s1"):
        apply(Open(Session(session, 20.0, 0.0)), 0.0, table.answer, table.put)
    claims = [Claim(f"s{number % 2}-{number}", f"s{number % 2}", "s0/x", "x.lock", f"a{number}") for number in range(9)]

    assert len(shortly(table, 1.0, *map(Enter, claims), *map(Release, claims))) == 18
    assert not table.rows
    assert not len(table.directory)


def test_what_was_done_before_a_mistake_is_told() -> None:
    table = Dictionary(7)
    apply(Open(Session("s0", 20.0, 0.0)), 0.0, table.answer, table.put)
    done: list[PutRow | DropRow] = []

    def steps() -> Iterator[shortcuts.Plain]:
        yield "s0", "s0-1", Claim("s0-1", "s0", "s0", "x.lock", "a")
        raise KeyError("a mistake")

    with pytest.raises(KeyError):
        shortcuts.carry_out(table, steps(), 1.0, done)

    assert done == [PutRow(table.rows["s0-1"])]
    assert table.last(0) == 8
