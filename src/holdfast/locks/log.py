"""A small append-only log: whoever appends says how long it expects the log to be.

The whole log is one cell, so that an append is one compare-and-swap. It is for coordination,
not for messages: what is no longer needed has to be trimmed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from holdfast.errors import Conflict, InvalidRequest
from holdfast.locks.cell import MOST_BYTES, CellFront, Pauses, encode
from holdfast.locks.client import Client
from holdfast.locks.lost_data import lost_data
from holdfast.locks.spec import check_count
from holdfast.locks.watching import End, Watching


class LogFront:
    """One log: the first `start` events were trimmed, the rest are here."""

    def __init__(self, client: Client, name: str) -> None:
        self.client, self.name = client, name
        self.cell = CellFront(client, "log", name)

    async def load(self) -> tuple[int, list[Any], int]:
        """The number of the first event that is here, the events, and the cell's version."""
        value, version = await self.cell.get()
        return (0, [], version) if value is None else (value["start"], value["events"], version)

    async def append(self, events: Sequence[Any], expected: int | None) -> int:
        """Append all of them, or none: Conflict unless the log is `expected` long. The new length."""
        events = check_events(events)
        if expected is not None:
            check_number("expected", expected)
        pauses = Pauses(self.client)
        while True:
            pauses.begin()
            start, kept, version = await self.load()
            length = start + len(kept)
            if expected is not None and expected != length:
                raise Conflict(self.name, expected, length, "length")
            try:
                await self.cell.set(self.room_for(start, kept + events), version)
                return length + len(events)
            except Conflict:
                # Somebody else appended or trimmed: whether that matters is for `expected` to say.
                await pauses.pause()

    def room_for(self, start: int, events: list[Any]) -> dict[str, Any]:
        """What the cell holds from now on; InvalidRequest if it is too much."""
        value = {"start": start, "events": events}
        try:
            encode(value)
        except InvalidRequest as error:
            rule = f"log {self.name!r} holds at most {MOST_BYTES} bytes: trim() what nobody needs any more"
            raise InvalidRequest("events", f"{error.value} together", rule) from error
        return value

    async def read(self, from_: int) -> list[Any]:
        """The events from number `from_` on, counted from 0; InvalidRequest if some of them were trimmed."""
        check_number("from_", from_)
        start, kept, _ = await self.load()
        if from_ < start:
            raise self.trimmed(from_, start)
        return kept[from_ - start :]

    def trimmed(self, from_: int, start: int) -> InvalidRequest:
        """The error for events that are not kept any more."""
        return InvalidRequest("from_", from_, f"log {self.name!r} was trimmed: it begins at {start}")

    async def length(self) -> int:
        """How many events were ever appended."""
        start, kept, _ = await self.load()
        return start + len(kept)

    async def trim(self, before: int) -> int:
        """Forget the events before number `before`; their numbers are not used again. The first number that is left."""
        check_number("before", before)
        pauses = Pauses(self.client)
        while True:
            pauses.begin()
            start, kept, version = await self.load()
            cut = min(max(before - start, 0), len(kept))
            if not cut:
                return start
            try:
                await self.cell.set({"start": start + cut, "events": kept[cut:]}, version)
                return start + cut
            except Conflict:
                await pauses.pause()

    async def follow(self, from_: int, end: End) -> AsyncIterator[tuple[int, Any]]:
        """Each event with its number, from `from_` on, as they are appended.

        HoldfastError if the log is shorter than it was, or if its last event is not the one that was given:
        the engine lost data.
        """
        check_number("from_", from_)
        given: list[Any] = []
        """The last event that was given, or nothing."""
        async with Watching(self.client, cell=(self.cell.kind, self.name), end=end) as watching:
            while True:
                start, kept, _ = await self.load()
                if from_ < start:
                    raise self.trimmed(from_, start)
                last = kept[max(from_ - 1 - start, 0) : from_ - start]
                if given and (start + len(kept) < from_ or (last and last != given)):
                    raise lost_data(self.client, f"log {self.name!r} no longer has event {from_ - 1} as it was")
                for event in kept[from_ - start :]:
                    yield from_, event
                    given = [event]
                    from_ += 1
                await watching.next_letters(None)


def check_number(argument: str, number: object) -> None:
    """A number of events."""
    check_count(argument, number, "events are counted from 0, in whole numbers below 2^53", least=0)


def check_events(events: object) -> list[Any]:
    """Events that can be kept."""
    if isinstance(events, str | bytes) or not isinstance(events, Sequence) or not events:
        raise InvalidRequest("events", events, "a list of one or more events")
    try:
        encode(list(events))
    except InvalidRequest as error:
        raise InvalidRequest("events", events, error.rule.replace("a cell", "a log")) from error
    return list(events)
