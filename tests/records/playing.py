"""Plays the fixed story on an engine, and keeps its clients standing still."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.faults.children import Child
from tests.records.dumps import Normal

TTL = 600.0
"""Long: no heartbeat writes to the store while the story is played."""
WITHIN = 120.0


@dataclass(frozen=True)
class Played:
    """A story that was played, by clients that stand still."""

    steps: list[str]
    normal: Normal
    offers: dict[str, str]


@contextmanager
def played(url: str, namespace: str = "story") -> Iterator[Played]:
    """The story on an engine. Its clients are stopped, and killed in the end."""
    with Child("tests.records.story:play", url, TTL, namespace) as clients:
        told: dict[str, Any] = clients.hear(WITHIN)
        clients.stop()
        with Child("tests.records.story:operate", url, TTL, namespace, told["offers"]) as operator:
            done: dict[str, Any] = operator.hear(WITHIN)
            operator.stop()
            sessions = dict(zip(told["sessions"] + done["sessions"], ("billing", "shipping", "operator"), strict=True))
            pids = {clients.pid: "clients", operator.pid: "operator"}
            yield Played(told["steps"] + done["steps"], Normal(sessions, pids), told["offers"])
