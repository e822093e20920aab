"""The holders of a lock that was not granted, for the error message."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.engines.engine import HolderVerbs, Verbs
from holdfast.errors import EngineFailure
from holdfast.model import Party
from holdfast.runtime.io import Signal


@dataclass(slots=True)
class Inspection:
    """One request to the engine, whose answer serves every caller that timed out on the name meanwhile."""

    holders: tuple[Party, ...] = ()
    waiting: list[Signal] = field(default_factory=list)


class HolderInspections:
    """At most one request per name is under way: a thousand timeouts do not inspect a thousand waiters each."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs
        self._current: dict[tuple[str, str], Inspection] = {}

    async def holders(self, kind: str, name: str, by: float) -> tuple[Party, ...]:
        """The holders; none if the engine does not answer in time, because the wait is over all the same."""
        io, key = self._verbs.io, (kind, name)
        current = self._current.get(key)
        if current is not None:
            signal = io.signal()
            current.waiting.append(signal)
            # The answer may have come between the two lines above, and has set no signal then.
            if self._current.get(key) is current:
                await io.wait(signal, by)
            return current.holders
        current = self._current[key] = Inspection()
        try:
            if isinstance(self._verbs, HolderVerbs):
                current.holders = await self._verbs.holders(kind, name, by)
            else:
                current.holders = (await self._verbs.inspect(kind, name, by)).holders
        except EngineFailure:
            return ()
        finally:
            self._current.pop(key, None)
            for signal in current.waiting:
                signal.set()
        return current.holders
