"""What happened in a simulated run: for the judge as records, for people as lines."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.runtime.simulated import World
from holdfast.verify.history import Call, Fault, History, Note, Outcome, Record, Run


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the story. `who` is "" for the teller."""

    at: float
    who: str
    event: str
    text: str
    facts: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.at:9.3f} s  {self.who:<8} {self.text}".rstrip()

    def as_dict(self) -> dict[str, Any]:
        """The same as plain data, for JSON."""
        return {"at": round(self.at, 6), "who": self.who, "event": self.event, "text": self.text, **self.facts}


class Chronicle:
    """Keeps the history and the story of one run."""

    def __init__(self, world: World, told: bool = True) -> None:
        self.world, self.told = world, told
        """Whether lines are kept: a search needs the records only."""
        self.began = world.time
        self.lines: list[Line] = []
        self._records: dict[str, Record] = {}
        self._notes: list[Note] = []
        self._number = 0

    def tell(self, who: str, event: str, text: str, **facts: Any) -> None:
        """Add a line to the story."""
        if self.told:
            self.lines.append(Line(self.world.time - self.began, who, event, text, facts))

    def begin(self, op: str, process: str, **facts: Any) -> Call:
        """A call is about to be made. Until `end` it counts as never answered."""
        self._number += 1
        call = Call(str(self._number), op, process, self.world.time, **facts)
        self._records[call.id] = call
        return call

    def end(self, call: Call, outcome: Outcome, **facts: Any) -> None:
        """The answer to a call is in hand."""
        self._records[call.id] = replace(call, end=self.world.time, outcome=outcome, **facts)

    def moment(self, op: str, process: str, **facts: Any) -> None:
        """A call that takes no time: `lost`, `check`."""
        self._number += 1
        at = self.world.time
        self._records[str(self._number)] = Call(str(self._number), op, process, at, at, "ok", **facts)

    def fault(self, what: str, target: str, **details: Any) -> Fault:
        """A fault begins now."""
        self._number += 1
        fault = Fault(what, target, self.world.time, details=details, id=str(self._number))
        self._records[fault.id] = fault
        return fault

    def undo(self, fault: Fault) -> None:
        """A fault is over now."""
        self._records[fault.id] = replace(fault, end=self.world.time)

    def note(self, what: str, **details: Any) -> None:
        """Something that the judge has to know."""
        self._notes.append(Note(what, self.world.time, details))

    def run(self, run: Run) -> None:
        """What is run: the first note."""
        self._notes.append(run.begin(self.world.time))

    def history(self) -> History:
        """All records, as the judge reads them."""
        return History.of([*self._notes, *self._records.values()])
