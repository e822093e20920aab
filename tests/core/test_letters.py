"""A watch that falls behind is told so, keeps within bounds, and hears again once it has caught up."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.table import Dictionary, apply
from holdfast.core.table import commands as cmd
from holdfast.core.table.rows import Session
from holdfast.core.table.step import MOST_LETTERS


class Watcher:
    """One session that watches a cell while it is written."""

    def __init__(self) -> None:
        self.table = Dictionary()
        self.send(cmd.Open(Session("s1", 10.0, 0.0)))
        self.send(cmd.Subscribe("s1", "w", "cell:cell", "c"))

    def send(self, command: cmd.Command) -> Any:
        return apply(command, 1.0, self.table.answer, self.table.put).reply

    def write(self, times: int) -> None:
        for _ in range(times):
            self.send(cmd.CellSet("cell", "c", b"x"))


def test_a_watch_that_fell_behind_is_told_so() -> None:
    watcher = Watcher()
    watcher.write(MOST_LETTERS)
    assert not watcher.send(cmd.Fetch("s1", "w", 0)).overflowed
    watcher.write(10)
    assert watcher.send(cmd.Fetch("s1", "w", 0)).overflowed


def test_what_was_fetched_before_takes_up_room_and_nothing_is_missed_without_a_word() -> None:
    watcher = Watcher()
    watcher.write(MOST_LETTERS // 2)
    read = watcher.send(cmd.Fetch("s1", "w", 0))
    assert not read.overflowed
    watcher.write(MOST_LETTERS // 2 + 50)
    assert watcher.send(cmd.Fetch("s1", "w", read.last)).overflowed


def test_what_is_missed_between_two_fetches_of_a_full_mailbox_is_told() -> None:
    watcher = Watcher()
    watcher.write(MOST_LETTERS + 1)
    read = watcher.send(cmd.Fetch("s1", "w", 0))
    watcher.write(1)
    assert watcher.send(cmd.Fetch("s1", "w", read.last)).overflowed
    watcher.write(1)
    assert not watcher.send(cmd.Fetch("s1", "w", read.last)).overflowed


def test_letters_are_bounded() -> None:
    watcher = Watcher()
    watcher.write(MOST_LETTERS + 50)
    assert len(watcher.table.letters["s1", "w"]) == MOST_LETTERS + 1


def test_a_watch_that_fell_behind_and_caught_up_hears_again() -> None:
    watcher = Watcher()
    watcher.write(MOST_LETTERS + 50)
    last = watcher.send(cmd.Fetch("s1", "w", 0)).last
    assert watcher.send(cmd.Fetch("s1", "w", last)).events == ()
    watcher.write(1)
    letters = watcher.send(cmd.Fetch("s1", "w", last))
    assert (len(letters.events), letters.last) == (1, last + 1)


def test_what_was_fetched_is_forgotten_and_the_numbers_go_on() -> None:
    watcher = Watcher()
    watcher.write(5)
    assert watcher.send(cmd.Fetch("s1", "w", 0)).last == 5
    watcher.send(cmd.Fetch("s1", "w", 5))
    assert watcher.table.letters["s1", "w"] == []
    watcher.write(1)
    assert watcher.send(cmd.Fetch("s1", "w", 5)).last == 6


@pytest.mark.parametrize("came_since", range(8))
def test_a_reader_of_a_later_state_is_told_that_events_were_lost_however_many_came_since(came_since: int) -> None:
    watcher = Watcher()
    watcher.write(2)
    watcher.send(cmd.Fetch("s1", "w", 0))
    # What it has seen up to number 5 is not in this table, which was put back.
    watcher.write(came_since)
    for _ in range(2):
        letters = watcher.send(cmd.Fetch("s1", "w", 5))
        assert (letters.lost, letters.events, letters.last) == (True, (), 2)
    goes_on = watcher.send(cmd.Fetch("s1", "w", letters.last))
    assert (goes_on.lost, len(goes_on.events)) == (False, came_since)
