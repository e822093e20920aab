"""Compare-and-swap on a versioned value."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from holdfast.core.backoff import full_jitter
from holdfast.core.table.commands import Mismatch
from holdfast.errors import Conflict, EngineUnavailable, InvalidRequest
from holdfast.locks.client import Client
from holdfast.locks.spec import check_seconds
from holdfast.locks.watching import Watching

MOST_BYTES = 65_536
RETRIES = 100

Value = Any
"""Bytes, or anything that JSON can carry."""


def encode(value: Value) -> bytes:
    """A value as it is kept: one byte says whether it is bytes or JSON."""
    if isinstance(value, bytes):
        kept = b"b" + value
    else:
        try:
            kept = b"j" + json.dumps(value, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise InvalidRequest("value", value, f"a cell holds bytes or what JSON can carry ({error})") from error
    if len(kept) > MOST_BYTES + 1:
        raise InvalidRequest("value", f"{len(kept) - 1} bytes", f"a cell holds at most {MOST_BYTES} bytes")
    return kept


def decode(kept: bytes | None) -> Value:
    """A kept value as the user gave it."""
    if kept is None:
        return None
    return kept[1:] if kept[:1] == b"b" else json.loads(kept[1:])


def check_version(version: object) -> int | None:
    """A version to expect: 0 for no value yet, None for any."""
    if version is None:
        return None
    if isinstance(version, bool) or not isinstance(version, int) or version < 0:
        raise InvalidRequest("version", version, "a version is what get() returned: an integer, 0 for no value")
    return version


class CellFront:
    """One cell of one kind."""

    def __init__(self, client: Client, kind: str, name: str, keep: float | None = None) -> None:
        self.client, self.kind, self.name = client, client.kind(kind), name
        self.keep = check_seconds("keep", keep, least=0.001)

    async def get(self) -> tuple[Value, int]:
        """The value and its version; None and 0 if there is none."""
        self.client.check_open()
        found = await self.client.verbs.cell_get(self.kind, self.name, self.client.until())
        return decode(found.value), found.version

    async def set(self, value: Value, version: int | None) -> int:
        """Write if the version is still this one; the new version. Conflict otherwise."""
        return await self.write(encode(value), check_version(version))

    async def delete(self, version: int | None) -> None:
        """Delete if the version is still this one. Conflict otherwise."""
        await self.write(None, check_version(version))

    async def write(self, kept: bytes | None, version: int | None) -> int:
        client = self.client
        client.check_open()
        reply = await client.verbs.cell_set(self.kind, self.name, kept, version, self.keep, client.until())
        if isinstance(reply, Mismatch):
            raise Conflict(self.name, version, reply.current)
        return reply.version

    async def update(self, change: Callable[[Value], Value], retries: int = RETRIES) -> tuple[Value, int]:
        """Replace the value by `change(value)`, again if somebody else was faster. What was written."""
        io = self.client.io
        pauses = full_jitter(0.001, 0.25, io.uniform)
        for tried in range(retries + 1):
            value, version = await self.get()
            wanted = change(value)
            try:
                return wanted, await self.set(wanted, version)
            except Conflict:
                if tried == retries:
                    raise
            await io.wait(io.signal(), io.now() + next(pauses))
        raise AssertionError("unreachable")

    async def watch(self) -> AsyncIterator[tuple[Value, int]]:
        """The value now, and again each time it has changed; changes in quick succession may be seen as one."""
        async with Watching(self.client, cell=(self.kind, self.name)) as watching:
            seen: int | None = None
            while True:
                try:
                    value, version = await self.get()
                except EngineUnavailable:
                    if self.client.closed:
                        return
                    raise
                if version != seen:
                    seen = version
                    yield value, version
                await watching.next_letters(None)
