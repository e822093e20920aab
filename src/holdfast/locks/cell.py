"""Compare-and-swap on a versioned value."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from inspect import iscoroutinefunction
from math import inf
from typing import Any

from holdfast.core.backoff import full_jitter
from holdfast.core.table.commands import Mismatch
from holdfast.errors import Conflict, EngineFailure, InvalidRequest
from holdfast.locks.ability import need_cells
from holdfast.locks.client import Client
from holdfast.locks.lost_data import lost_data
from holdfast.locks.spec import check_count, check_keep
from holdfast.locks.watching import End, Watching
from holdfast.model import MAX_TOKEN

MOST_BYTES = 65_536
DEEPEST = 500
"""How many lists and objects of a value may be inside each other."""
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[][{}]')
RETRIES = 100
SHORTEST_PAUSE, LONGEST_PAUSE = 0.001, 1.0
TRIES_A_PAUSE = 4
"""How many times as long as a try takes the first pause may be: with 16 writers fewer than two tries an update."""

Value = Any
"""Bytes, or anything that JSON can carry."""


def encode(value: Value) -> bytes:
    """A value as it is kept: one byte says whether it is bytes or JSON."""
    if isinstance(value, bytes):
        kept = b"b" + value
    else:
        try:
            text = json.dumps(value, allow_nan=False, separators=(",", ":"))
            if too_deep(text):
                raise ValueError(f"it is nested more than {DEEPEST} times")
            kept = b"j" + text.encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidRequest("value", value, f"a cell holds bytes or what JSON can carry ({error})") from error
    if len(kept) > MOST_BYTES + 1:
        raise InvalidRequest("value", f"{len(kept) - 1} bytes", f"a cell holds at most {MOST_BYTES} bytes")
    return kept


def too_deep(text: str) -> bool:
    """Whether JSON is nested so deeply that not every Python can read it: some write more than others read."""
    if text.count("[") + text.count("{") <= DEEPEST:
        return False
    depth = 0
    for token in _TOKENS.findall(text):
        if token in "[{":
            depth += 1
            if depth > DEEPEST:
                return True
        elif token in "]}":
            depth -= 1
    return False


def decode(kept: bytes | None) -> Value:
    """A kept value as the user gave it."""
    if kept is None:
        return None
    return kept[1:] if kept[:1] == b"b" else json.loads(kept[1:])


def check_version(version: object) -> int | None:
    """A version to expect: 0 for no value yet, None for any."""
    if version is None:
        return None
    if isinstance(version, bool) or not isinstance(version, int) or not 0 <= version <= MAX_TOKEN:
        raise InvalidRequest("version", version, "a version is what get() returned: an integer, 0 for no value")
    return version


class CellFront:
    """One cell of one kind; Unsupported where the engine keeps none."""

    def __init__(self, client: Client, kind: str, name: str, keep: float | None = None) -> None:
        need_cells(client, kind)
        self.client, self.kind, self.name = client, client.kind(kind), name
        self.keep = check_keep(keep)

    async def get(self, by: float = inf) -> tuple[Value, int]:
        """The value and its version; None and 0 if there is none."""
        self.client.check_open()
        found = await self.client.verbs.cell_get(self.kind, self.name, min(by, self.client.until()))
        return decode(found.value), found.version

    async def set(self, value: Value, version: int | None, by: float = inf) -> int:
        """Write if the version is still this one; the new version. Conflict otherwise."""
        return await self.write(encode(value), check_version(version), self.keep, by)

    async def try_set(self, value: Value, version: int, by: float = inf) -> int | Mismatch:
        """Write if the version is still this one; the new version, or the mismatch."""
        return await self.try_write(encode(value), version, self.keep, by)

    async def delete(self, version: int | None) -> None:
        """Delete if the version is still this one. Conflict otherwise."""
        await self.write(None, check_version(version), None)

    async def write(self, kept: bytes | None, version: int | None, keep: float | None, by: float = inf) -> int:
        """One request: what is kept for `keep` seconds (None: for ever), or nothing any more. Conflict as for `set`."""
        written = await self.try_write(kept, version, keep, by)
        if isinstance(written, Mismatch):
            raise Conflict(self.name, version, written.current)
        return written

    async def try_write(
        self, kept: bytes | None, version: int | None, keep: float | None, by: float = inf
    ) -> int | Mismatch:
        """The same, with the mismatch as a value: a Conflict may be raised by a signal handler's call too."""
        client = self.client
        client.check_open()
        reply = await client.verbs.cell_set(self.kind, self.name, kept, version, keep, min(by, client.until()))
        return reply if isinstance(reply, Mismatch) else reply.version

    async def update(self, change: Callable[[Value], Value], retries: int = RETRIES) -> tuple[Value, int]:
        """Replace the value by `change(value)`, again if somebody else was faster. What was written.

        Conflict after so many retries. `change` may be called several times.
        """
        check_update(change, retries)
        pauses = Pauses(self.client)
        while True:
            pauses.begin()
            value, version = await self.get()
            wanted = change(value)
            written = await self.try_set(wanted, version)
            if not isinstance(written, Mismatch):
                return wanted, written
            if pauses.tries > retries:
                raise Conflict(self.name, version, written.current)
            await pauses.pause()

    async def watch(self, end: End) -> AsyncIterator[tuple[Value, int]]:
        """The value now, and again each time it has changed; changes in quick succession may be seen as one.

        HoldfastError if the version is lower than one that was seen: the engine lost data.
        """
        async with Watching(self.client, cell=(self.kind, self.name), end=end) as watching:
            seen: int | None = None
            highest = 0
            while True:
                try:
                    value, version = await self.get()
                except EngineFailure:
                    if self.client.closed:
                        return
                    raise
                if 0 < version < highest:
                    problem = f"cell {self.name!r} went back from version {highest} to {version}"
                    raise lost_data(self.client, problem)
                if version != seen:
                    seen, highest = version, max(version, highest)
                    yield value, version
                await watching.next_letters(None)


def check_update(change: object, retries: object) -> None:
    """What `update` takes."""
    if not callable(change) or iscoroutinefunction(change):
        raise InvalidRequest("change", change, "a plain function that gets the value and returns the next one")
    check_count("retries", retries, "how often to try again: a whole number from 0 to 2^53 - 1", least=0)


class Pauses:
    """The pauses between tries of one who meets others: full jitter, on the scale of how long a try takes.

    A fixed scale would be too short for an engine whose requests take longer than it, where
    all would meet again and again, and a waste for a quick one.
    """

    def __init__(self, client: Client) -> None:
        self.io = client.io
        self.tries = 0
        self._began = 0.0
        self._pauses: Iterator[float] | None = None

    def begin(self) -> None:
        """A try begins."""
        self.tries += 1
        self._began = self.io.now()

    async def pause(self) -> None:
        """It met somebody: keep out of the way for a while."""
        if self._pauses is None:
            first = max(SHORTEST_PAUSE, TRIES_A_PAUSE * (self.io.now() - self._began))
            self._pauses = full_jitter(min(first, LONGEST_PAUSE), LONGEST_PAUSE, self.io.uniform)
        await self.io.wait(self.io.signal(), self.io.now() + next(self._pauses))
