"""What came of a run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.verify import history
from holdfast.verify.history import History

STAGE = "stage"
"""Whose file has the faults and notes that belong to all workloads."""


@dataclass
class Performance:
    """Where the histories of a run are, and what was not tested, with the reason."""

    folder: Path
    workloads: list[str] = field(default_factory=list)
    controls: list[str] = field(default_factory=list)
    """Workloads that must be found broken."""
    struck: Counter[str] = field(default_factory=Counter)
    """How often each fault struck."""
    not_tested: dict[str, str] = field(default_factory=dict)
    """Faults and workloads that were left out, and why."""
    late: list[str] = field(default_factory=list)
    """Clients that had not come through in time after healing, and were ended."""
    surprises: list[str] = field(default_factory=list)
    """What no workload expects: a crash of a client, an error of an unknown kind."""

    def history(self, workload: str) -> History:
        """The history of one workload, with what the stage did."""
        return history.read(self.folder / workload, self.folder / f"{STAGE}.jsonl")

    def histories(self) -> list[History]:
        """Those of all workloads, controls last."""
        return [self.history(workload) for workload in (*self.workloads, *self.controls)]
