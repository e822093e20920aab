"""What `doctor` finds: how a deployment is really set up, and what that does to a lock."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol, runtime_checkable

Level = Literal["good", "warning", "danger"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    check: str
    """What was looked at: `eviction policy`."""
    level: Level
    found: str
    """What is set there."""
    consequence: str = ""
    """What that means for a lock."""
    mend: str = ""
    """The setting that mends it."""

    def as_dict(self) -> dict[str, Any]:
        """The same as plain data, for JSON."""
        return asdict(self)


@runtime_checkable
class CheckedEngine(Protocol):
    """An engine that can look at its own deployment."""

    def check_up(self) -> list[Finding]:
        """Read the real configuration; EngineUnavailable if it cannot be reached."""
