"""The history of one run: every call, every fault, every note, as JSON lines.

One run is one workload on one target. Each of its processes appends to a file of its own in one
folder, and `read` merges them by time: all times are `runtime.clock.now()` of one machine.

A call is written when it starts and again, under the same id, when it was answered; the last line
counts. A process that is killed half-way has therefore left a call that was never answered.

**Calls.** All have op, process, start, end, outcome, and owner, name, kind, error where there is one.

- `acquire`, `campaign`, `adopt`: mode, limit, subtree, reentrant, wait. ok: claim, token, slot,
  deadline. queued: since when the claim was known to have a place in line that it kept until the
  call ended; left out if its session ended meanwhile and another claim took over.
  An adopt names as source the claim that was handed over. Re-entries share the claim of the first.
- `release`, `resign`: claim. The hold is over at its *start*. failed: the grant was lost before.
- `close`: the client of this owner (no owner: of this process) was closed, and all its holds with it.
- `check`: claim, deadline. ok: the holder looked after `start` and found its grant valid. A hold
  without an end is believed up to its last deadline, or the start of its last ok check.
- `lost`: claim; start is when the holder was told, deadline until when its grant had called itself
  valid. It may come after a release too.
- `break`: force.
- `read` (of the protected resource): claim, token, fenced. ok: value, a list of the elements found.
- `write`: claim, token, fenced; value: the one element that was added, unique in the run.
  ok: version, the resource's own count of accepted writes, where it has one. failed: certainly not
  done; refused by a fence: error is `StaleToken`.
- `cell_get`. ok: value, version (nothing there: None, 0).
- `cell_set`, `cell_delete`: value; expected (None: whatever is there). ok: version.
  failed with error `Conflict`: version is what was there instead.
- `inspect`. ok: value is `{"holders": [...], "waiters": [...]}`, each a text with
  the owner or the claim as one of its words.
  Those that start after the note `end` say what was left behind. One with a claim was made by
  the session of that claim, after its release: it must not be there any more.

A fenced `read` presents its token to the fence too, in the same step as it reads. Otherwise an
older holder may write between the read and the write of the next one, and that update is lost
although every write was fenced.

A `deadline` is a reading of the clock *before* the look at `grant.remaining`, plus what remained: a
pause between the two must not make it later than it is.

**Outcomes.** `ok`: done. `failed`: certainly not done (NotAcquired, Conflict, StaleToken, Deadlock,
"not done"). `unknown`: nobody can say, or no answer yet.

**Notes.** `begin`: what is judged, see `Run`. `heal`: the last fault is over; `within`: seconds
until which things have to go on. `end`: the workload has stopped, its clients are closed, and
all sessions that were killed have had time to end.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from holdfast.model import Mode
from holdfast.runtime import clock

Outcome = Literal["ok", "failed", "unknown"]

GRANTING = frozenset({"acquire", "campaign", "adopt"})
RELEASING = frozenset({"release", "resign"})


@dataclass(frozen=True, slots=True)
class Call:
    """One call of one process, from before it was made until its answer was in hand."""

    id: str
    op: str
    process: str
    start: float
    end: float | None = None
    """None: it was never answered."""
    outcome: Outcome = "unknown"
    owner: str = ""
    """The owner as Holdfast sees it; reentrancy goes by it."""
    name: str = ""
    kind: str = "lock"
    mode: Mode = "exclusive"
    limit: int = 0
    subtree: bool = False
    reentrant: bool = False
    wait: float | None = None
    """For how long it would stand in line; None: for ever."""
    claim: str = ""
    """What ties the records of one hold together: the claim id, or anything else that is unique in the run."""
    source: str = ""
    token: int | None = None
    slot: int | None = None
    deadline: float | None = None
    """Until when the holder may call its grant valid, as known at `end`."""
    queued: float | None = None
    value: Any = None
    version: int | None = None
    expected: int | None = None
    fenced: bool = False
    force: bool = False
    error: str = ""
    """The name of the exception's class."""
    details: dict[str, Any] = field(default_factory=dict)
    """What only people want to know."""

    @property
    def ok(self) -> bool:
        """Whether it was certainly done."""
        return self.outcome == "ok"


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that was done to a process or a server on purpose."""

    what: str
    """`pause`, `kill`, `cut`, `stall`, `drop-replies`, `restart`, `partition`, `clock`, `disk-full`, `fsync` …"""
    target: str
    """A `process` of the calls, or a server's name."""
    start: float
    end: float | None = None
    """None: it was not undone."""
    details: dict[str, Any] = field(default_factory=dict)
    id: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """A moment that the judge has to know of: `begin`, `heal`, `end`, or anything for people to read."""

    what: str
    at: float
    details: dict[str, Any] = field(default_factory=dict)
    process: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """What was run: the details of the note `begin`."""

    target: str = ""
    """As on the command line: `redis`, `sqlite`, a URL without its secrets."""
    workload: str = ""
    seed: int = 0
    command: str = ""
    """The line that runs it again."""
    ttl: float = 0.0
    faults: tuple[str, ...] = ()
    guarantees: dict[str, Any] = field(default_factory=dict)
    """`Guarantees.as_dict()` of the engine."""
    control: str = ""
    """The claim that has to be found broken (`exclusion`, `tokens`, …); empty: none must be."""
    details: dict[str, Any] = field(default_factory=dict)

    def begin(self, at: float | None = None) -> Note:
        """The note that opens a history."""
        return Note("begin", clock.now() if at is None else at, asdict(self))


Record = Call | Fault | Note
_TYPES: dict[str, type[Call] | type[Fault] | type[Note]] = {"call": Call, "fault": Fault, "note": Note}
_KEYS = {kind: key for key, kind in _TYPES.items()}
_DEFAULTS = {kind: {each.name: each.default for each in fields(kind)} for kind in _KEYS}


def line(record: Record) -> str:
    """A record as one line of JSON; what has its default value is left out."""
    kind = type(record)
    facts: dict[str, Any] = {"type": _KEYS[kind]}
    for name, default in _DEFAULTS[kind].items():
        value = getattr(record, name)
        if value != default and value != {}:
            facts[name] = value
    return json.dumps(facts, separators=(",", ":"), default=_plain)


def _plain(value: object) -> Any:
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, bytes):
        return value.decode()
    raise TypeError(f"{value!r} cannot be part of a history: use text, numbers, lists and dictionaries")


def parse(text: str) -> Record:
    """The record that `line` wrote."""
    facts = json.loads(text)
    kind = _TYPES[facts.pop("type")]
    known = _DEFAULTS[kind].keys()
    # A newer version may write more fields than this one knows.
    return kind(**{name: value for name, value in facts.items() if name in known})


class Recorder:
    """Appends the records of one process to its own file. Any thread may use it.

    Each record is in the file when the method returns, so that a killed process keeps its history.
    """

    def __init__(self, folder: Path, process: str, now: Callable[[], float] = clock.now) -> None:
        self.process, self.now = process, now
        self._file = os.open(folder / f"{process}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._ids = itertools.count(1)
        # A process that is started again under its old name must not repeat its ids.
        self._life = f"{process}.{os.getpid()}"

    def begin(self, op: str, **facts: Any) -> Call:
        """A call is about to be made. Until `end` it counts as never answered."""
        call = Call(f"{self._life}.{next(self._ids)}", op, self.process, self.now(), **facts)
        self.write(call)
        return call

    def end(self, call: Call, outcome: Outcome, **facts: Any) -> Call:
        """The answer to a call is in hand: write it with what is known now."""
        answered = replace(call, end=self.now(), outcome=outcome, **facts)
        self.write(answered)
        return answered

    def moment(self, op: str, outcome: Outcome = "ok", at: float | None = None, **facts: Any) -> Call:
        """A call that takes no time. For a `check`, `at` is the clock *before* the holder looked."""
        at = self.now() if at is None else at
        call = Call(f"{self._life}.{next(self._ids)}", op, self.process, at, at, outcome, **facts)
        self.write(call)
        return call

    def fault(self, what: str, target: str, **details: Any) -> Fault:
        """A fault begins now."""
        fault = Fault(what, target, self.now(), details=details, id=f"{self._life}.{next(self._ids)}")
        self.write(fault)
        return fault

    def undo(self, fault: Fault) -> Fault:
        """A fault is over now."""
        over = replace(fault, end=self.now())
        self.write(over)
        return over

    def note(self, what: str, **details: Any) -> Note:
        """Something the judge, or a reader, has to know."""
        note = Note(what, self.now(), details, self.process)
        self.write(note)
        return note

    def write(self, record: Record) -> None:
        """Append a record, with one write, so that the lines of two threads are never mixed."""
        data = f"{line(record)}\n".encode()
        written = os.write(self._file, data)
        assert written == len(data), f"the history of {self.process} could not be written: is the disk full?"

    def close(self) -> None:
        """Close the file. What was recorded is there already."""
        os.close(self._file)


@dataclass(frozen=True, slots=True)
class History:
    """All records of one run, each kind in the order of its start."""

    calls: tuple[Call, ...] = ()
    faults: tuple[Fault, ...] = ()
    notes: tuple[Note, ...] = ()
    processes: frozenset[str] = field(init=False, compare=False, repr=False)
    """Who made calls; whatever else a fault names is a server."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "processes", frozenset(call.process for call in self.calls))

    @classmethod
    def of(cls, records: Iterable[Record]) -> History:
        """Sort records, in any order; of several with one id the last one counts."""
        latest: dict[object, Record] = {}
        for record in records:
            key = id(record) if isinstance(record, Note) else (type(record), record.id or id(record))
            latest[key] = record
        calls = [record for record in latest.values() if isinstance(record, Call)]
        faults = [record for record in latest.values() if isinstance(record, Fault)]
        notes = [record for record in latest.values() if isinstance(record, Note)]
        return cls(
            tuple(sorted(calls, key=lambda call: call.start)),
            tuple(sorted(faults, key=lambda fault: fault.start)),
            tuple(sorted(notes, key=lambda note: note.at)),
        )

    def __iter__(self) -> Iterator[Record]:
        """Every record."""
        yield from self.notes
        yield from self.faults
        yield from self.calls

    @property
    def work(self) -> tuple[float, float]:
        """From the first call to the last one; what a stage did before and after is not this run's."""
        ends = [call.start if call.end is None else call.end for call in self.calls]
        return (min(call.start for call in self.calls), max(ends)) if ends else self.span

    def own(self) -> History:
        """Without the faults that struck before its first call or after its last: they were another run's."""
        first, last = self.work
        faults = (each for each in self.faults if each.start <= last and (each.end is None or each.end >= first))
        return replace(self, faults=tuple(faults))

    def note(self, what: str) -> Note | None:
        """The last note of this kind."""
        return next((note for note in reversed(self.notes) if note.what == what), None)

    @property
    def run(self) -> Run:
        """What was run; an empty one if nobody noted it."""
        begin = self.note("begin")
        known = {each.name for each in fields(Run)}
        facts = {name: value for name, value in (begin.details if begin else {}).items() if name in known}
        return Run(**{**facts, "faults": tuple(facts.get("faults", ()))})

    @property
    def span(self) -> tuple[float, float]:
        """The first and the last moment that anything is known of."""
        times = [note.at for note in self.notes]
        spans: list[Call | Fault] = [*self.calls, *self.faults]
        for record in spans:
            times += [record.start, record.start if record.end is None else record.end]
        return (min(times), max(times)) if times else (0.0, 0.0)


def read(*paths: Path) -> History:
    """Merge files, or all `*.jsonl` of a folder, into one history."""
    files = [file for path in paths for file in (sorted(path.glob("*.jsonl")) if path.is_dir() else [path])]
    return History.of(record for file in files for record in _records(file))


def _records(file: Path) -> Iterator[Record]:
    lines = file.read_text().split("\n")
    # What follows the last newline was cut off while it was written; it is nobody's answer.
    for text in lines[:-1]:
        yield parse(text)


def write(history: History, file: Path) -> None:
    """Write a whole history into one file, to be kept or sent."""
    file.write_text("".join(f"{line(record)}\n" for record in history))
