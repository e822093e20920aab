"""A verdict on the terminal: tables, what to rely on, and the story of what went wrong."""

from __future__ import annotations

from holdfast.cli import screen
from holdfast.verify.verdict import Row, Verdict

COLOURS = {"kept": "green", "broken": "bold red", "verifier broken": "bold red"}


def show(verdict: Verdict) -> None:
    """Everything a person needs to know, the most important thing last."""
    run = verdict.run
    screen.line(f"{run.target}, seed {run.seed}, faults: {', '.join(verdict.struck) or 'none'}", "bold")
    screen.table(("claim", "state", "promised", "checked", "meaning"), [_cells(row) for row in verdict.rows])
    if verdict.declared:
        rows = [(each.guarantee.replace("_", " "), each.says, each.seen, each.by) for each in verdict.declared]
        screen.table(("guarantee", "declared", "seen", "by"), rows)
    if verdict.controls:
        found = [
            (each.workload, each.claim, "caught" if each.caught else "MISSED", each.why) for each in verdict.controls
        ]
        screen.table(("control", "claim", "state", "why"), found)
    for what, why in verdict.left_out.items():
        screen.line(f"not tested: {what}: {why}", "yellow")
    for surprise in verdict.surprises:
        screen.line(f"surprise: {surprise}", "bold red")
    for row in verdict.rows:
        if row.shortest is not None:
            _tell(row)
    screen.line(verdict.paragraph())
    if run.command:
        screen.line(f"again: {run.command}", "dim")
    screen.line(verdict.result, COLOURS.get(verdict.result, "yellow"))


def _cells(row: Row) -> tuple[str, str, str, str, str]:
    why = f" ({row.why})" if row.why else ""
    checked = f"{row.total} of {row.checked}" if row.total else str(row.checked or "–")
    return row.claim, row.word, "yes" if row.promised else "no", checked, f"{row.sentence}{why}"


def _tell(row: Row) -> None:
    """The shortest story of a violation."""
    screen.line(f"{row.claim}, in the workload {row.workload!r}:", "bold red" if row.bad else "yellow")
    for line in row.story():
        screen.line(f"  {line}")
