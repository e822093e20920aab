"""Runs operations with a fault at each of their requests, many side by side, and says what went wrong."""

from __future__ import annotations

import asyncio
import os
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import get_args

from tests.engines.lost_messages.observing import OBSERVING
from tests.engines.lost_messages.operations import HOLDING, Operation
from tests.engines.lost_messages.recorded import RECORDED
from tests.engines.lost_messages.scene import LATENESS, Scene, Site, told
from tests.engines.lost_messages.sets import SETS
from tests.faults.message_proxy import Fate, Fault, How

OPERATIONS = [*HOLDING, *SETS, *OBSERVING, *RECORDED]
KINDS: list[tuple[Fate, How]] = [(fate, how) for fate, how in product(get_args(Fate), get_args(How))]
ALL = bool(os.environ.get("HOLDFAST_LOST_MESSAGES"))
"""Whether to run all cases, and not only a sample."""
SIDE_BY_SIDE = 8
MOST_REQUESTS = 16
"""A longer operation is one that polls: its later requests are like the earlier ones."""
TRIES = 3
"""How many times more a case runs whose fault has struck nothing."""


@dataclass(frozen=True)
class Case:
    """One operation and one fault."""

    operation: Operation
    fault: Fault | None

    def __str__(self) -> str:
        return f"{self.operation.name}: {self.fault or 'no fault'}"


@dataclass(frozen=True)
class Result:
    """What became of a case."""

    case: Case
    count: int
    struck: bool
    problem: str = ""
    is_late: bool = False

    def again(self) -> Case | None:
        """The case to run instead, if the fault has struck nothing: at the last of the requests that there were."""
        fault = self.case.fault
        if fault is None or self.struck:
            return None
        return Case(self.case.operation, replace(fault, number=min(fault.number, max(1, self.count))))


def cases(operation: Operation, count: int) -> Iterator[Case]:
    """A fault of every kind at each request of an operation."""
    for number in range(1, min(count, MOST_REQUESTS) + 1):
        for fate, how in KINDS:
            yield Case(operation, Fault(fate, how, number))


async def run(site: Site, case: Case) -> Result:
    """Prepare, act, heal, judge."""
    scene, operation = Scene(site, case.fault), case.operation
    outcome = None
    count, struck, problem, late = 0, False, "", False
    try:
        await scene.open()
        await operation.prepare(scene)
        scene.arm()
        outcome = await told(operation.act(scene))
        count, struck = scene.count, scene.struck
        scene.heal()
        await operation.judge(scene, outcome)
        if operation.name != "close":
            await scene.expect_work()
        late = outcome.took > operation.limit + LATENESS
        if case.fault is not None and not struck:
            problem = f"the fault struck nothing: there were {count} requests"
        if late:
            problem = f"promised within {operation.limit:.2f} s: {outcome}"
    except AssertionError as error:
        problem = f"{error}; told {outcome}"
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what went wrong with this case
        problem = f"{raised(error)}; told {outcome}"
    finally:
        try:
            await scene.end()
        except Exception as error:  # noqa: BLE001
            problem = problem or f"closing: {raised(error)}"
    return Result(case, count, struck, problem and f"{site.subject.name}, {site.api.name}: {case}: {problem}", late)


def raised(error: Exception) -> str:
    """An error, and which line of an operation it came from."""
    ours = [frame for frame in traceback.extract_tb(error.__traceback__) if "lost_messages" in frame.filename]
    where = f"{ours[-1].name}, line {ours[-1].lineno}: {ours[-1].line}" if ours else ""
    return f"{type(error).__name__}: {error} ({where})"


async def run_all(sites: Sequence[Site], chosen: Sequence[Case]) -> list[Result]:
    """All of them, one at a time on each site. An answer that comes late is waited for again, alone.

    A case whose fault has struck nothing runs again too, with an earlier request: how many requests an operation
    makes depends on chance, such as a heartbeat.
    """
    left = list(reversed(chosen))
    results: list[Result] = []

    async def work(site: Site) -> None:
        while left:
            results.append(await run(site, left.pop()))

    await asyncio.gather(*(work(site) for site in sites))
    results = [await run(sites[0], result.case) if result.is_late else result for result in results]
    for _ in range(TRIES):
        results = [result if (case := result.again()) is None else await run(sites[0], case) for result in results]
    return results


async def enumerate_cases(sites: Sequence[Site], operations: Sequence[Operation]) -> dict[Operation, list[Case]]:
    """All cases of each operation: its requests are counted without a fault."""
    found = {}
    for control in await run_all(sites, [Case(operation, None) for operation in operations]):
        assert not control.problem, control.problem
        assert control.count, f"{control.case} has no request"
        found[control.case.operation] = list(cases(control.case.operation, control.count))
    return found


def problems(results: Sequence[Result]) -> list[str]:
    return [result.problem for result in results if result.problem]
