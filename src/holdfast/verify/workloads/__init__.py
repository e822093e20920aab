"""What clients do while faults strike: a row each."""

from __future__ import annotations

from holdfast.verify.workloads.cell import Cell
from holdfast.verify.workloads.election import Election
from holdfast.verify.workloads.line import Line
from holdfast.verify.workloads.mutex import Mutex
from holdfast.verify.workloads.no_mutex import NoMutex
from holdfast.verify.workloads.protected import Protected
from holdfast.verify.workloads.readers import Readers
from holdfast.verify.workloads.semaphore import Semaphore
from holdfast.verify.workloads.unfenced import Unfenced
from holdfast.verify.workloads.workload import Workload

WORKLOADS: dict[str, type[Workload]] = {
    each.name: each for each in (Mutex, Protected, Semaphore, Readers, Line, Election, Cell)
}
"""Those whose promises have to be kept."""

CONTROLS: dict[str, type[Workload]] = {each.name: each for each in (Unfenced, NoMutex)}
"""Those that have to be found broken."""


def find_workload(name: str) -> type[Workload]:
    """A workload of either table."""
    return {**WORKLOADS, **CONTROLS}[name]
