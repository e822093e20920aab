"""A small append-only log: whoever appends says how long it expects the log to be.

The whole log is one cell, so that an append is one compare-and-swap. It is for coordination,
not for messages: what is no longer needed has to be trimmed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from functools import reduce
from typing import Any, NamedTuple

from holdfast.core.table.commands import Mismatch
from holdfast.errors import Conflict, InvalidRequest
from holdfast.locks.cell import MOST_BYTES, CellFront, Pauses, encode
from holdfast.locks.client import Client
from holdfast.locks.lost_data import lost_data
from holdfast.locks.spec import check_count
from holdfast.locks.watching import End, Watching


class History(NamedTuple):
    """A log as it was read: the first `start` events were trimmed, the rest are here."""

    start: int
    before: str
    """The digest of those that were trimmed."""
    events: list[Any]
    version: int
    """Of the cell."""

    @property
    def length(self) -> int:
        return self.start + len(self.events)

    def digest(self, number: int) -> str:
        """Of all events before this number, trimmed ones too. It tells histories of equal length apart."""
        return reduce(_next_digest, self.events[: number - self.start], self.before)

    def goes_on(self, length: int, digest: str) -> bool:
        """Whether its first events are those of an earlier log; True if too many of them are trimmed to tell."""
        return self.length >= length and (self.start > length or self.digest(length) == digest)

    def without(self, cut: int) -> dict[str, Any]:
        """What the cell holds without the first `cut` of the events."""
        start = self.start + cut
        return {"start": start, "before": self.digest(start), "events": self.events[cut:]}


def _next_digest(before: str, event: Any) -> str:
    text = json.dumps([before, event], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


class LogFront:
    """One log."""

    def __init__(self, client: Client, name: str) -> None:
        self.client, self.name = client, name
        self.cell = CellFront(client, "log", name)

    async def load(self) -> History:
        """The log as it is now."""
        value, version = await self.cell.get()
        if value is None:
            return History(0, "", [], version)
        return History(value["start"], value["before"], value["events"], version)

    async def append(self, events: Sequence[Any], expected: int | None) -> int:
        """Append all of them, or none: Conflict unless the log is `expected` long. The new length."""
        events = check_events(events)
        if expected is not None:
            check_number("expected", expected)
        pauses = Pauses(self.client)
        while True:
            pauses.begin()
            now = await self.load()
            if expected is not None and expected != now.length:
                raise Conflict(self.name, expected, now.length, "length")
            written = await self.cell.try_set(self.room_for(now._replace(events=now.events + events)), now.version)
            if not isinstance(written, Mismatch):
                return now.length + len(events)
            # Another client appended or trimmed: whether that matters is for `expected` to say.
            await pauses.pause()

    def room_for(self, history: History) -> dict[str, Any]:
        """What the cell holds from now on; InvalidRequest if it is too much."""
        value = history.without(0)
        try:
            encode(value)
        except InvalidRequest as error:
            rule = f"log {self.name!r} holds at most {MOST_BYTES} bytes: trim() what nobody needs any more"
            raise InvalidRequest("events", f"{error.value} together", rule) from error
        return value

    async def read(self, from_: int) -> list[Any]:
        """The events from number `from_` on, counted from 0; InvalidRequest if some of them were trimmed."""
        check_number("from_", from_)
        now = await self.load()
        if from_ < now.start:
            raise self.trimmed(from_, now.start)
        return now.events[from_ - now.start :]

    def trimmed(self, from_: int, start: int) -> InvalidRequest:
        """The error for events that are not kept any more."""
        return InvalidRequest("from_", from_, f"log {self.name!r} was trimmed: it begins at {start}")

    async def length(self) -> int:
        """How many events were ever appended."""
        return (await self.load()).length

    async def trim(self, before: int) -> int:
        """Forget the events before number `before`; their numbers are not used again. The first number that is left."""
        check_number("before", before)
        pauses = Pauses(self.client)
        while True:
            pauses.begin()
            now = await self.load()
            cut = min(max(before - now.start, 0), len(now.events))
            if not cut:
                return now.start
            written = await self.cell.try_set(now.without(cut), now.version)
            if not isinstance(written, Mismatch):
                return now.start + cut
            await pauses.pause()

    async def follow(self, from_: int, end: End) -> AsyncIterator[tuple[int, Any]]:
        """Each event with its number, from `from_` on, as they are appended.

        HoldfastError if the log is shorter than it was, or if the events that were seen are others now: the engine
        lost data.
        """
        check_number("from_", from_)
        length, digest = 0, ""
        async with Watching(self.client, cell=(self.cell.kind, self.name), end=end) as watching:
            while True:
                now = await self.load()
                if from_ < now.start:
                    raise self.trimmed(from_, now.start)
                if not now.goes_on(length, digest):
                    raise lost_data(self.client, f"log {self.name!r} no longer has its first {length} events")
                length, digest = now.length, now.digest(now.length)
                for event in now.events[from_ - now.start :]:
                    yield from_, event
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
