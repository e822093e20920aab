"""Whatever message of whatever operation is lost, unanswered or late: the client is told the truth, and leaves nothing.

For each engine and each operation, every request is struck by every kind of fault, as many as there are without one.
Afterwards independent clients look: what was told is true, nothing is held or queued that the caller does not know of,
no lock is held twice, and the answer came in time. `make test` runs a sample, `make marathon` all.
"""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

import pytest

from holdfast import EngineUnavailable
from holdfast.locks import acquire
from holdfast.locks.cell import CellFront
from tests.conformance.apis import APIS
from tests.conformance.engines import Subject
from tests.engines.lost_messages.cases import OPERATIONS, Case, enumerate_cases, problems, run, run_all
from tests.engines.lost_messages.conftest import OVER_A_CONNECTION
from tests.engines.lost_messages.operations import Operation
from tests.engines.lost_messages.scene import Site
from tests.faults.message_proxy import Fault

SAMPLE = 8
"""Cases for each engine in `make test`."""


def turn(site: Site, what: str) -> int:
    """A number that depends on the names alone, so that it is the same in every run."""
    return crc32(f"{what} on {site.subject.name} through {site.api.name}".encode())


@pytest.mark.by_turns
async def test_a_lost_message_makes_no_answer_untrue_and_leaves_nothing(
    sites: list[Site], operation: Operation | None
) -> None:
    site = sites[0]
    operations = [one for one in OPERATIONS if operation in (one, None) and one.possible(site.guarantees)]
    if operation is None:
        operations = sorted(operations, key=lambda one: turn(site, one.name))[:SAMPLE]
    found = await enumerate_cases(sites, operations)
    chosen = [case for one in operations for case in found[one]]
    if operation is None:
        chosen = [found[one][turn(site, f"fault of {one.name}") % len(found[one])] for one in operations]

    results = await run_all(sites, chosen)

    assert problems(results) == []
    assert all(result.struck for result in results)


ONCE_FAILED = [
    ("postgresql", "lock_all, try_acquire of what is held", Fault("late", "cut", 2)),
    ("zookeeper", "break", Fault("unanswered", "cut", 5)),
]
"""Cases that found a defect, for every run."""


@pytest.mark.parametrize(("name", "what", "fault"), ONCE_FAILED, ids=lambda value: str(value))
async def test_a_case_that_once_failed_does_not_fail_again(
    name: str, what: str, fault: Fault, fresh_url: Callable[[Subject], str]
) -> None:
    subject = next(subject for subject in OVER_A_CONNECTION if subject.name == name)
    site = await Site.open(subject, APIS[0], fresh_url(subject))
    result = await run(site, Case(next(one for one in OPERATIONS if one.name == what), fault))
    await site.close()

    assert result.problem == ""
    assert result.struck


# Controls: what has to be found.


async def judged(fresh_url: Callable[[Subject], str], name: str, fault: Fault) -> str:
    """What is found wrong with one operation on Redis."""
    subject = next(subject for subject in OVER_A_CONNECTION if subject.name == "redis")
    site = await Site.open(subject, APIS[0], fresh_url(subject))
    result = await run(site, Case(next(one for one in OPERATIONS if one.name == name), fault))
    await site.close()
    assert result.struck
    return result.problem


async def test_a_claim_that_is_not_withdrawn_is_found(
    fresh_url: Callable[[Subject], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = Fault("unanswered", "silence", 1)
    assert await judged(fresh_url, "acquire", fault) == ""

    async def forget(*_: object) -> None: ...

    monkeypatch.setattr(acquire, "undo", forget)
    assert "0 claims, but held by ['far']" in await judged(fresh_url, "acquire", fault)


async def test_a_write_that_was_done_and_told_as_not_done_is_found(
    fresh_url: Callable[[Subject], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = Fault("unanswered", "cut", 1)
    assert await judged(fresh_url, "cell set", fault) == ""
    honest = CellFront.set

    async def lie(*args: object) -> object:
        try:
            return await honest(*args)  # type: ignore[arg-type]
        except EngineUnavailable as error:
            raise EngineUnavailable(error.engine, error.problem, "not done") from error

    monkeypatch.setattr(CellFront, "set", lie)
    assert "there is ('new'" in await judged(fresh_url, "cell set", fault)
