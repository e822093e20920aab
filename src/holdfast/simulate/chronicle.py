"""What happened in a simulated run: for the judge as records, for people as lines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from holdfast.runtime.simulated import World
from holdfast.verify.history import Call, Fault, History, Note, Outcome, Run


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


@dataclass(slots=True)
class Begun:
    """A call or a fault that is under way: made into a record when the run is over, because runs are many."""

    id: str
    made: type[Call] | type[Fault]
    start: float
    facts: dict[str, Any]


class Chronicle:
    """Keeps the history and the story of one run."""

    def __init__(self, world: World, told: bool = True) -> None:
        self.world, self.told = world, told
        """Whether lines are kept: a search needs the records only."""
        self.began = world.time
        self.lines: list[Line] = []
        self._begun: list[Begun] = []
        self._notes: list[Note] = []

    def tell(self, who: str, event: str, text: str, **facts: Any) -> None:
        """Add a line to the story."""
        if self.told:
            self.lines.append(Line(self.world.time - self.began, who, event, text, facts))

    def begin(self, op: str, process: str, **facts: Any) -> Begun:
        """A call is about to be made. Until `end` it counts as never answered."""
        facts["op"], facts["process"] = op, process
        call = Begun(str(len(self._begun)), Call, self.world.time, facts)
        self._begun.append(call)
        return call

    def end(self, call: Begun, outcome: Outcome, **facts: Any) -> None:
        """The answer to a call is in hand."""
        call.facts.update(facts, end=self.world.time, outcome=outcome)

    def moment(self, op: str, process: str, **facts: Any) -> None:
        """A call that takes no time: `lost`, `check`."""
        self.end(self.begin(op, process, **facts), "ok")

    def fault(self, what: str, target: str, **details: Any) -> Begun:
        """A fault begins now."""
        fault = Begun(
            str(len(self._begun)), Fault, self.world.time, {"what": what, "target": target, "details": details}
        )
        self._begun.append(fault)
        return fault

    def undo(self, fault: Begun) -> None:
        """A fault is over now."""
        fault.facts["end"] = self.world.time

    def note(self, what: str, **details: Any) -> None:
        """Something that the judge has to know."""
        self._notes.append(Note(what, self.world.time, details))

    def run(self, run: Run) -> None:
        """What is run: the first note."""
        self._notes.append(run.begin(self.world.time))

    def history(self) -> History:
        """All records, as the judge reads them."""
        records = [begun.made(id=begun.id, start=begun.start, **begun.facts) for begun in self._begun]
        return History.of([*self._notes, *records])
