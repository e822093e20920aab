"""Work whose result is recorded once for all who ask.

A cell holds the record, an exclusive claim the right to work. Whoever gets its turn first
writes its own token into the cell (the mark), and records its result only if that mark is
still there: the late result of a worker that was lost half-way is refused, because the next
worker's mark has replaced its own.

The work itself can start again after such a loss, with a higher token. `work(grant)` gets the token
for a fence; a key by which somebody else knows a repeated request has to be the same in every try.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from types import EllipsisType
from typing import Any

from holdfast.core.table.commands import Mismatch
from holdfast.errors import EngineFailure, InvalidRequest, RecordedFailure, StaleToken
from holdfast.locks.acquire import acquire, answer_by
from holdfast.locks.cell import CellFront, Pauses, decode, encode
from holdfast.locks.client import GRACE, Client
from holdfast.locks.hold import Entry, Hold
from holdfast.locks.outcome import unknown_from_here
from holdfast.locks.several import let_go
from holdfast.locks.spec import Spec, check_keep

KEEP = 86_400.0
KEEP_MARK = 30 * 86_400.0
"""How long the mark of a worker that died is kept, should nobody ask again. No work under a lock takes longer."""
LONGEST_PROBLEM = 4096

Under = Callable[[Entry, Callable[[Any], Any]], Awaitable[Any]]
"""Does the work under a hold, as a `with` would: the work gets the grant."""


@dataclass(frozen=True, slots=True)
class Record:
    """What the cell says: nothing (`by` 0), who works, or what came of it."""

    by: int = 0
    """The token of whoever wrote it."""
    done: bool = False
    result: Any = None
    failure: tuple[str, str] | None = None
    cause: BaseException | None = None
    """What failed, for whoever did the work; it is not kept."""

    def encoded(self) -> bytes:
        """As it is kept; InvalidRequest if the result cannot be."""
        kept: dict[str, Any] = {"by": self.by}
        if self.failure is not None:
            kept["failed"] = self.failure
        elif self.done and isinstance(self.result, bytes):
            kept["bytes"] = base64.b64encode(self.result).decode()
        elif self.done:
            kept["result"] = self.result
        try:
            return encode(kept)
        except InvalidRequest as error:
            raise InvalidRequest("result", self.result, error.rule.replace("a cell", "a record")) from error

    def outcome(self, name: str) -> Any:
        """What it means to whoever asked."""
        assert self.done
        if self.failure is not None:
            raise RecordedFailure(name, *self.failure) from self.cause
        return self.result


def read(kept: Any) -> Record:
    """What a cell's value says."""
    if kept is None:
        return Record()
    if "failed" in kept:
        return Record(kept["by"], True, failure=(kept["failed"][0], kept["failed"][1]))
    if "bytes" in kept:
        return Record(kept["by"], True, base64.b64decode(kept["bytes"]))
    return Record(kept["by"], "result" in kept, kept.get("result"))


class OnceFront:
    """One key, and what became of it."""

    def __init__(self, client: Client, spec: Spec, keep: float | None, failures: bool) -> None:
        self.client, self.spec, self.failures = client, spec, failures
        self.cell = CellFront(client, "once", spec.name, keep)

    async def look(self, by: float = inf) -> tuple[Record, int]:
        """What is recorded, and the cell's version."""
        value, version = await self.cell.get(by)
        return read(value), version

    async def run(
        self, work: Callable[[Any], Any], under: Under, wait: float | None, keep: float | EllipsisType | None
    ) -> Any:
        """The recorded result, worked out here if nobody has done so; NotAcquired if others take longer than `wait`.

        One deadline limits every request before the work, and another one those after it.
        """
        if not callable(work):
            raise InvalidRequest("work", work, "a function that gets the grant and returns the result")
        kept_for = self.cell.keep if isinstance(keep, EllipsisType) else check_keep(keep)
        io = self.client.io
        until = None if wait is None else io.now() + wait
        by = answer_by(until)
        record, _ = await self.look(by)
        while not record.done:
            taken: list[Entry] = []
            try:
                left = None if until is None else max(0.0, until - io.now())
                entry = await acquire(self.client, self.spec, left, taken)
                hold = entry.held
                record, version = await self.look(by)
                if record.done:
                    break
                if record.by < hold.token:
                    marked = await self.mark(hold, version, by)
                    if marked is not None:
                        try:
                            record = await self.take_turn(entry, marked, work, under, kept_for)
                        finally:
                            by = max(by, io.now() + GRACE)
                elif hold.valid:
                    # Nobody can have a higher token while this one is held: the engine's tokens went back.
                    raise StaleToken(self.spec.name, hold.token, record.by)
                # Otherwise it was lost before it could look, and somebody else works: stand in line again.
            finally:
                await io.shielded(let_go(self.client, taken, by))
        return record.outcome(self.spec.name)

    async def mark(self, hold: Hold, version: int, by: float) -> int | None:
        """Write that this holder works now: the mark's version; None if another turn came meanwhile."""
        written = await self.cell.try_write(Record(hold.token).encoded(), version, KEEP_MARK, by)
        return None if isinstance(written, Mismatch) else written

    async def take_turn(
        self, entry: Entry, version: int, work: Callable[[Any], Any], under: Under, keep: float | None
    ) -> Record:
        """Work, and record what came of it; an empty record if another turn came meanwhile."""
        hold = entry.held
        cause: BaseException | None = None
        try:
            record = Record(hold.token, True, await under(entry, work))
            kept = record.encoded()
        except Exception as error:
            if not hold.valid:
                raise  # whatever it is, the work was not ours any more
            if not self.failures:
                await self.withdraw(version)
                raise
            cause, problem = error, str(error)[:LONGEST_PROBLEM]
            record = Record(hold.token, True, failure=(type(error).__name__, problem))
            kept = record.encoded()
        # What everybody gets is what was kept, the worker too: JSON turns a tuple into a list.
        with unknown_from_here():
            recorded = await self.put(hold, version, kept, keep)
        return replace(read(decode(kept)), cause=cause) if recorded else Record()

    async def put(self, hold: Hold, version: int, kept: bytes, keep: float | None) -> bool:
        """Record what came of the work, if our mark is still there; whether it is recorded.

        A write that was not answered is repeated: it cannot be made twice, because the first
        one replaces the mark. For as long as an outage takes away the hold anyway, not for ever:
        an engine may refuse to write although it renews.
        """
        pauses = Pauses(self.client)
        until = self.client.io.now() + self.client.ttl
        while True:
            pauses.begin()
            try:
                written = await self.cell.try_write(kept, version, keep)
                if not isinstance(written, Mismatch):
                    return True
                found, _ = await self.look()
                return found.done and found.by == hold.token
            except EngineFailure:
                if not hold.valid or self.client.io.now() >= until:
                    raise
            await pauses.pause()

    async def withdraw(self, version: int) -> None:
        """Take back the mark of a turn that recorded nothing. One that stays keeps nobody from working."""
        with suppress(EngineFailure):
            await self.cell.try_write(None, version, None, self.client.io.now() + GRACE)

    async def forget(self) -> bool:
        """Forget what is recorded, so that the next one to ask works again; work that is under way is left alone."""
        pauses = Pauses(self.client)
        while True:
            pauses.begin()
            record, version = await self.look()
            if not record.done:
                return False
            if not isinstance(await self.cell.try_write(None, version, None), Mismatch):
                return True
            await pauses.pause()
