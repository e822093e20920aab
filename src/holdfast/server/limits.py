"""What a client can make grow, and how far."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from holdfast.errors import InvalidRequest

LEAST = {"idle": 0, "output": 4, "total_output": 4}
"""Where it is not 1. Requests wait from a quarter of these on: of none, for ever."""
SHARED = (
    "connections", "sessions", "claims", "claim_bytes", "withdrawn", "watches", "prefix_watches", "cells", "cell_bytes",
    "cell_writes",
)  # fmt: skip
"""Limits of all users together of which one user may take a share only, half of it by default."""


def share_of(limit: str) -> str:
    """The limit of one user that belongs to a limit of all."""
    return f"{limit}_per_user"


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on everything that comes from outside. Durations in ms, sizes in bytes.

    Shares of users (`…_per_user`) count where there are users. 0 stands for half of what all may take.
    """

    connections: int = 10_000
    connections_per_user: int = 0
    sessions: int = 20_000
    sessions_per_user: int = 0
    claims: int = 5_000_000
    claims_per_user: int = 0
    claims_per_session: int = 100_000
    claim_bytes: int = 2 << 30
    """Of the texts of all claims and sessions."""
    claim_bytes_per_user: int = 0
    withdrawn: int = 1_000_000
    """Claims that are remembered after they were withdrawn or taken away."""
    withdrawn_per_user: int = 0
    withdrawn_per_session: int = 1_000
    waiters_per_lock: int = 100_000
    watches: int = 1_000
    watches_per_user: int = 0
    watches_per_session: int = 100
    prefix_watches: int = 100
    """Those of many names: each event is written for each of them."""
    prefix_watches_per_user: int = 0
    letters: int = 100_000
    """Events that were not fetched, of all watches."""
    cells: int = 1_000_000
    cells_per_user: int = 0
    cell_bytes: int = 256 << 20
    """Of the values and names of all cells."""
    cell_bytes_per_user: int = 0
    cell_writes: int = 64 << 20
    """Of values that are being written at this moment."""
    cell_writes_per_user: int = 0
    text: int = 1_024
    """Of a note, owner, thread, app or host."""
    value: int = 1 << 20
    """Of a cell."""
    frame: int = 2 << 20
    frame_before_login: int = 4_096
    pipeline: int = 10_000
    """Requests of one connection that are under way."""
    output: int = 16 << 20
    """Replies that a client has not read."""
    total_input: int = 256 << 20
    """Of requests of all clients that have not arrived completely."""
    total_output: int = 1 << 30
    """Of replies that clients have not read, all of them together."""
    list: int = 1_000
    """Claims in one answer."""
    search: int = 1_000
    """Claims that one search for a deadlock looks at."""
    min_ttl: int = 100
    max_ttl: int = 86_400_000
    idle: int = 0
    """How long a connection may say nothing; 0: for ever."""
    login: int = 10_000
    """How long a connection may take to log in, where it has to."""

    def __post_init__(self) -> None:
        for name in SHARED:
            if not getattr(self, share_of(name)):
                object.__setattr__(self, share_of(name), max(1, getattr(self, name) // 2))

    @classmethod
    def of(cls, settings: dict[str, Any]) -> Limits:
        """The defaults with what a configuration says instead. InvalidRequest names what is wrong."""
        known = {field.name for field in fields(cls)}
        for name, value in settings.items():
            if name not in known:
                raise InvalidRequest(
                    f"limits.{name}", value, f"there is no such limit; there are {', '.join(sorted(known))}"
                )
            least = LEAST.get(name, 1)
            if type(value) is not int or value < least:
                raise InvalidRequest(f"limits.{name}", value, f"a limit is a whole number of at least {least}")
        limits = cls(**settings)
        if limits.min_ttl > limits.max_ttl:
            raise InvalidRequest("limits.min_ttl", limits.min_ttl, f"it is over max_ttl = {limits.max_ttl}")
        if limits.frame < limits.value + 4096:
            raise InvalidRequest(
                "limits.frame", limits.frame, f"a value of {limits.value} bytes has to fit into a frame"
            )
        return limits
