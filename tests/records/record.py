"""A record: a text file with what the program did when it was recorded."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

import pytest

MOST_LINES_SHOWN = 60


@dataclass(frozen=True)
class Record:
    """One file under `recorded/`."""

    path: Path
    recording: bool

    @property
    def name(self) -> str:
        """The path from the repository's root."""
        return str(self.path.relative_to(Path(__file__).parents[2]))

    def text(self) -> str:
        """What is recorded. A record that is missing is a failure."""
        if not self.path.exists():
            pytest.fail(f"{self.name} is missing: record it with --record", pytrace=False)
        return self.path.read_text()

    def write(self, text: str) -> None:
        """Write the record anew."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(text)

    def compare(self, now: str) -> None:
        """Fail with the differing lines if the program does something else now; when recording, write it down."""
        if self.recording:
            self.write(now)
            return
        if difference := first_differences(self.text(), now):
            pytest.fail(f"{self.name} differs (- recorded, + now):\n{difference}", pytrace=False)


def first_differences(recorded: str, now: str) -> str:
    """The first differing lines, each with the two lines around it; empty if there are none."""
    lines = list(difflib.unified_diff(recorded.splitlines(), now.splitlines(), n=2, lineterm=""))[2:]
    shown = lines[:MOST_LINES_SHOWN]
    if len(lines) > len(shown):
        shown.append(f"… and {len(lines) - len(shown)} more lines")
    return "\n".join(shown)
