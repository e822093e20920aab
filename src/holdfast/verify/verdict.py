"""The verdict: what was found, compared with what the engine declares.

A claim that is promised and broken is a bug, in the engine or in its declaration. One that is not
promised and was seen broken is told too: that is what *not promised* looks like. A control that was
not found broken means that the verifier is blind, and nothing else that it says counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from holdfast.verify.checkers import updates
from holdfast.verify.declared import Declared, compare
from holdfast.verify.finding import Finding, State, Violation, found, story
from holdfast.verify.history import History, Run
from holdfast.verify.promises import CLAIMS, Claim, counted_twice, struck

Result = Literal["kept", "broken", "not decided", "not tested", "verifier broken"]

EXIT_CODES: dict[Result, int] = {
    "kept": 0,
    "broken": 1,
    # sysexits.h: EX_SOFTWARE. The verifier does not do what it is for.
    "verifier broken": 70,
    # sysexits.h: EX_TEMPFAIL. Worth another try, with more time.
    "not decided": 75,
    "not tested": 75,
}


@dataclass(frozen=True, slots=True)
class Row:
    """One claim over all runs."""

    claim: str
    sentence: str
    state: State
    promised: bool
    why: str = ""
    """Why it is not promised, was not tested, or could not be decided."""
    checked: int = 0
    total: int = 0
    shortest: Violation | None = None
    workload: str = ""
    """Where the violation was found."""
    origin: float = 0.0
    """When that run began."""

    @property
    def bad(self) -> bool:
        """Whether a promise was broken."""
        return self.promised and self.state == "broken"

    @property
    def word(self) -> str:
        """The state as people read it."""
        return "broken, as it may be" if self.state == "broken" and not self.promised else self.state

    def story(self) -> list[str]:
        """The shortest violation, in seconds from the start of its run."""
        return story(self.shortest, self.origin) if self.shortest is not None else []


@dataclass(frozen=True, slots=True)
class Control:
    """A run that had to be found broken."""

    workload: str
    claim: str
    caught: bool
    why: str = ""
    shortest: Violation | None = None
    origin: float = 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """All of it: for people, for programs, and for the exit code."""

    run: Run
    rows: tuple[Row, ...]
    declared: tuple[Declared, ...]
    controls: tuple[Control, ...] = ()
    struck: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Faults and workloads that could not be run, and why."""
    surprises: tuple[str, ...] = ()
    """What no workload expects: a client that crashed, an error of an unknown kind."""
    late: tuple[str, ...] = ()
    """Clients that had not come through in time, although nothing stood still."""

    @property
    def result(self) -> Result:
        """In one word. A blind verifier comes first, because the rest is worth nothing then."""
        if any(not control.caught for control in self.controls):
            return "verifier broken"
        if any(row.bad for row in self.rows) or self.surprises:
            return "broken"
        states = {row.state for row in self.rows if row.promised}
        # Without fairness anybody may starve; with it, the machine was too slow, or something is wrong.
        if "not decided" in states or (self.late and self.run.guarantees.get("fair")):
            return "not decided"
        return "kept" if "kept" in states else "not tested"

    @property
    def exit_code(self) -> int:
        """0 kept, 1 broken, 70 the verifier is broken, 75 not decided or nothing tested."""
        return EXIT_CODES[self.result]

    def paragraph(self) -> str:
        """What a user may rely on."""
        return rely(self)

    def as_dict(self) -> dict[str, Any]:
        """The same as plain data, for JSON."""
        return {
            "result": self.result,
            "exit_code": self.exit_code,
            "target": self.run.target,
            "seed": self.run.seed,
            "command": self.run.command,
            "rely_on": self.paragraph(),
            "faults": list(self.struck),
            "claims": [_row(row) for row in self.rows],
            "guarantees": [each.as_dict() for each in self.declared],
            "controls": [
                {"workload": each.workload, "claim": each.claim, "caught": each.caught, "why": each.why}
                for each in self.controls
            ],
            "left_out": dict(self.left_out),
            "surprises": list(self.surprises),
            "late": list(self.late),
        }


def _row(row: Row) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "claim": row.claim,
        "meaning": row.sentence,
        "promised": row.promised,
        "state": row.state,
        "checked": row.checked,
        "violations": row.total,
    }
    if row.why:
        facts["why"] = row.why
    if row.shortest is not None:
        facts |= {"workload": row.workload, "summary": row.shortest.summary, "story": row.story()}
    return facts


def judge(
    histories: Iterable[History],
    left_out: Mapping[str, str] | None = None,
    surprises: Sequence[str] = (),
    late: Sequence[str] = (),
) -> Verdict:
    """Judge the runs of one target together. Those that are controls are judged as such, and only so."""
    runs = [history.own() for history in histories]
    assert runs, "there is nothing to judge: no history was given"
    real = [history for history in runs if not history.run.control]
    controls = tuple(_control(history) for history in runs if history.run.control)
    rows = tuple(_judge_claim(name, real) for name in CLAIMS)
    faults = frozenset().union(*(struck(history) for history in real)) if real else frozenset()
    run = (real or runs)[0].run
    # What may break under these faults says nothing about the guarantee behind it, unless it held all the same.
    telling = {row.claim: row.state for row in rows if row.promised or row.state == "kept"}
    declared = compare(run.guarantees, telling, faults)
    return Verdict(run, rows, declared, controls, tuple(sorted(faults)), left_out or {}, tuple(surprises), tuple(late))


def _judge_claim(name: str, histories: Sequence[History]) -> Row:
    """One claim over all runs: the worst that was found where it was promised, else the worst at all."""
    claim = CLAIMS[name]
    every = [_weighed(claim, claim.check(history), history) for history in histories]
    tested = [each for each in every if each.finding.state != "not tested"]
    if not tested:
        doubt = next((each.doubt for each in every if each.doubt), "")
        why = next((each.finding.why for each in every), "no run was for it")
        return Row(name, claim.sentence, "not tested", not doubt, doubt or why)
    worst = min(tested, key=lambda each: each.rank)
    return Row(
        claim=name,
        sentence=claim.sentence,
        state=worst.finding.state,
        promised=not worst.doubt,
        why=worst.doubt or worst.finding.why,
        checked=sum(each.finding.checked for each in tested),
        total=sum(each.finding.total for each in tested),
        shortest=worst.violation,
        workload=worst.history.run.workload,
        origin=worst.history.work[0],
    )


@dataclass(frozen=True, slots=True)
class _Weighed:
    """What was found in one run, and whether it was promised there."""

    finding: Finding
    history: History
    doubt: str
    violation: Violation | None = None

    @property
    def rank(self) -> tuple[int, bool, tuple[int, float]]:
        """The worst is the least: broken first, then promised, then the shortest story."""
        worst_first = ("broken", "not decided", "kept", "not tested")
        weight = self.violation.weight if self.violation is not None else (0, 0.0)
        return worst_first.index(self.finding.state), bool(self.doubt), weight


def _weighed(claim: Claim, finding: Finding, history: History) -> _Weighed:
    """A violation is excused only by what had struck before it, and one without an excuse is enough."""
    guarantees = history.run.guarantees
    finding = _without_the_unproved(finding, history)
    if not finding.violations:
        return _Weighed(finding, history, claim.doubt(guarantees, struck(history)))
    every = [_Weighed(finding, history, _excuse(claim, each, history), each) for each in finding.violations]
    return min(every, key=lambda each: each.rank)


def _excuse(claim: Claim, broken: Violation, history: History) -> str:
    """Why this violation is not one of a promise; empty if it is."""
    doubt = claim.doubt(history.run.guarantees, struck(history, broken.at))
    return doubt or (counted_twice(history, broken.at) if broken.equal_tokens else "")


def _without_the_unproved(finding: Finding, history: History) -> Finding:
    """Leave out violations whose proof rests on a claim that may have been broken at that moment."""
    guarantees = history.run.guarantees
    proved = [
        each
        for each in finding.violations
        if not each.given or not CLAIMS[each.given].doubt(guarantees, struck(history, each.at))
    ]
    if len(proved) == len(finding.violations):
        return finding
    return found(finding.claim, finding.checked, proved)


def _control(history: History) -> Control:
    """A control has to be found broken in the claim that it names."""
    run = history.run
    names = [run.control, updates.UNFENCED] if run.control == updates.CLAIM else [run.control]
    findings = [CLAIMS[name].check(history) for name in names]
    for finding in findings:
        if finding.state == "broken":
            return Control(run.workload, finding.claim, True, "", finding.shortest, history.work[0])
    return Control(run.workload, run.control, False, findings[-1].why or "nothing wrong was found in it")


def rely(verdict: Verdict) -> str:
    """One paragraph: what held, under what; what did not; what nobody looked at."""
    run = verdict.run
    faults = ", ".join(verdict.struck) or "no faults at all"
    parts = [f"{run.target or 'This engine'} was run under {faults} (seed {run.seed})."]
    if verdict.result == "verifier broken":
        blind = ", ".join(each.workload for each in verdict.controls if not each.caught)
        parts.append(f"Rely on none of it: a control that must be found broken was not ({blind}).")
        return " ".join(parts)
    kept = [row for row in verdict.rows if row.promised and row.state == "kept"]
    broken = [row for row in verdict.rows if row.bad]
    open_ = [row for row in verdict.rows if row.promised and row.state in ("not tested", "not decided")]
    weak = [row for row in verdict.rows if not row.promised and row.state == "broken"]
    if kept:
        parts.append(f"You may rely on what was promised and held: {_listed([row.sentence for row in kept])}.")
    parts += [f"Do not rely on '{row.claim}': it is promised, and it was broken {_times(row.total)}." for row in broken]
    parts += [
        f"'{row.claim}' is not promised here ({row.why}), and was seen broken {_times(row.total)}." for row in weak
    ]
    if verdict.surprises:
        parts.append(f"A client failed in a way that the API does not know ({_times(len(verdict.surprises))}).")
    if verdict.late:
        parts.append(f"{_listed(verdict.late)} had not come through in time: give it more ttl, or fewer clients.")
    if open_:
        parts.append(f"Nothing is known of {_listed([row.claim for row in open_])}.")
    if any(row.promised and row.state == "kept" for row in verdict.rows) and not broken:
        parts.append("A lock alone does not stop a holder that pauses: pass its token to what you write to.")
    return " ".join(parts)


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _listed(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
