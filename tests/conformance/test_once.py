"""Work whose result is recorded once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Deadlock, InvalidRequest, NotAcquired, RecordedFailure
from tests.conformance.abilities import needs
from tests.conformance.apis import Front
from tests.conformance.stage import Stage, eventually, soon


class Work:
    """Work that counts how often it is done, in either API."""

    def __init__(self, result: Any = "done", error: Exception | None = None) -> None:
        self.result, self.error = result, error
        self.tokens: list[int] = []
        self.may_end = threading.Event()
        self.may_end.set()

    def __call__(self, grant: Any) -> Any:
        self.tokens.append(grant.token)
        self.may_end.wait(30.0)
        if self.error is not None:
            raise self.error
        return self.result

    async def awaited(self, grant: Any) -> Any:
        self.tokens.append(grant.token)
        await eventually(self.may_end.is_set, within=30.0)
        if self.error is not None:
            raise self.error
        return self.result

    def by(self, stage: Stage) -> Callable[..., Any]:
        """As the API takes it."""
        return stage.api.function(self.awaited, self)


@pytest.mark.any_connection
@needs("cells")
async def test_the_work_is_done_once_for_all_who_ask(stage: Stage, locks: Front, rival: Front) -> None:
    work, other = Work({"charged": 7}), Work("never")

    assert await locks.once("pay").run(work.by(stage)) == {"charged": 7}
    assert await locks.once("pay").run(other.by(stage)) == {"charged": 7}
    assert await rival.once("pay").run(other.by(stage)) == {"charged": 7}
    assert (len(work.tokens), other.tokens) == (1, [])


@needs("cells")
async def test_every_result_comes_back_as_it_was(stage: Stage, locks: Front, rival: Front) -> None:
    results: list[Any] = [None, False, 0, "", [], b"\x00\xff", {"a": [1]}, "ü"]
    for number, result in enumerate(results):
        assert await locks.once(f"k{number}").run(Work(result).by(stage)) == result
        assert await rival.once(f"k{number}").run(Work("never").by(stage)) == result


@needs("cells")
async def test_the_worker_gets_the_same_as_all_others(stage: Stage, locks: Front) -> None:
    assert await locks.once("k").run(Work((1, 2)).by(stage)) == [1, 2]


@pytest.mark.any_connection
@needs("cells")
async def test_whoever_comes_while_another_works_waits_and_gets_its_result(
    stage: Stage, locks: Front, rival: Front
) -> None:
    work, other = Work("first"), Work("second")
    work.may_end.clear()
    working = stage.begin(locks.once("k").run(work.by(stage)))
    await eventually(lambda: len(work.tokens) == 1)
    asker = stage.another(rival)
    waiting = await stage.queued(rival, "k", asker.once("k").run(other.by(stage)), kind="once")
    work.may_end.set()

    assert await soon(working) == "first"
    assert await soon(waiting) == "first"
    assert other.tokens == []


@needs("cells")
async def test_whoever_does_not_want_to_wait_so_long_is_told(stage: Stage, locks: Front, rival: Front) -> None:
    work = Work()
    work.may_end.clear()
    working = stage.begin(locks.once("k").run(work.by(stage)))
    await eventually(lambda: len(work.tokens) == 1)

    with pytest.raises(NotAcquired):
        await rival.once("k").run(Work().by(stage), wait=0.05)
    with pytest.raises(NotAcquired):
        await rival.once("k", wait=0.05).run(Work().by(stage))
    work.may_end.set()
    await soon(working)


@needs("cells")
async def test_a_failure_is_not_recorded_unless_told_so(stage: Stage, locks: Front, rival: Front) -> None:
    broken, good = Work(error=ZeroDivisionError("oops")), Work("good")

    with pytest.raises(ZeroDivisionError):
        await locks.once("k").run(broken.by(stage))
    assert await rival.once("k").run(good.by(stage)) == "good"
    assert good.tokens[0] > broken.tokens[0]


@needs("cells")
async def test_a_failure_is_recorded_if_told_so(stage: Stage, locks: Front, rival: Front) -> None:
    again = Work("never")

    for client, work in ((locks, Work(error=KeyError("no such account"))), (rival, again)):
        with pytest.raises(RecordedFailure) as failed:
            await client.once("k", failures=True).run(work.by(stage))
        assert (failed.value.name, failed.value.error, failed.value.problem) == ("k", "KeyError", "'no such account'")
        # Who did the work is told where it failed.
        assert isinstance(failed.value.__cause__, KeyError) == (client is locks)
    assert again.tokens == []


@needs("cells")
async def test_what_is_forgotten_is_done_again_with_a_higher_token(stage: Stage, locks: Front, rival: Front) -> None:
    work = Work()
    await locks.once("k").run(work.by(stage))

    assert await rival.once("k").forget() is True
    assert await rival.once("k").forget() is False
    await rival.once("k").run(work.by(stage))
    assert len(work.tokens) == 2
    assert work.tokens[1] > work.tokens[0]


@needs("cells")
async def test_work_under_way_is_not_forgotten(stage: Stage, locks: Front, rival: Front) -> None:
    work = Work("kept")
    work.may_end.clear()
    working = stage.begin(locks.once("k").run(work.by(stage)))
    await eventually(lambda: len(work.tokens) == 1)

    assert await rival.once("k").forget() is False
    work.may_end.set()
    assert await soon(working) == "kept"
    assert await rival.once("k").run(Work("never").by(stage)) == "kept"


@pytest.mark.by_turns
@needs("cells")
async def test_a_key_is_forgotten_after_keep(stage: Stage, locks: Front, rival: Front) -> None:
    work = Work()
    await locks.once("k").run(work.by(stage), keep=0.05)

    async def worked_again() -> bool:
        await rival.once("k", keep=0.05).run(work.by(stage))
        return len(work.tokens) > 1

    await eventually(worked_again)


@pytest.mark.by_turns
@needs("cells")
async def test_a_worker_whose_client_died_is_replaced_with_a_higher_token(stage: Stage, rival: Front) -> None:
    doomed = await stage.client(ttl=0.5)
    work, other = Work("late"), Work("second")
    work.may_end.clear()
    working = stage.begin(doomed.once("k").run(work.by(stage)))
    await eventually(lambda: len(work.tokens) == 1)
    stage.silence(doomed)

    assert await soon(rival.once("k").run(other.by(stage))) == "second"
    assert other.tokens[0] > work.tokens[0]
    work.may_end.set()
    await asyncio.wait({working}, timeout=20.0)
    assert await rival.once("k").run(Work("never").by(stage)) == "second"


@needs("cells")
async def test_a_result_that_cannot_be_kept_is_refused(stage: Stage, locks: Front) -> None:
    for result in (object(), "x" * 70_000):
        with pytest.raises(InvalidRequest, match="result"):
            await locks.once("k").run(Work(result).by(stage))
    assert await locks.once("k").run(Work("fits").by(stage)) == "fits"


@needs("cells")
async def test_work_that_asks_for_its_own_result_is_a_deadlock(stage: Stage, locks: Front) -> None:
    async def awaited(grant: Any) -> Any:
        return await locks.target.once("k").run(Work().awaited)

    def plain(grant: Any) -> Any:
        return locks.target.once("k").run(Work())

    with pytest.raises(Deadlock):
        await soon(locks.once("k").run(stage.api.function(awaited, plain)))


@needs("cells")
async def test_a_decorated_function_is_done_once_for_each_key(stage: Stage, locks: Front) -> None:
    done: list[tuple[int, int]] = []

    async def charge_awaited(grant: Any, payment: int, amount: int = 1) -> Any:
        done.append((payment, amount))
        return payment + amount

    def charge_plain(grant: Any, payment: int, amount: int = 1) -> Any:
        done.append((payment, amount))
        return payment + amount

    charge = locks.target.once("pay:{payment}")(stage.api.function(charge_awaited, charge_plain))
    results = [await locks.actor.do(charge, *args) for args in ((77,), (77, 9), (78, 2))]

    assert results == [78, 78, 80]
    assert done == [(77, 1), (78, 2)]


@needs("cells")
async def test_a_decorator_names_an_argument_that_there_is(stage: Stage, locks: Front) -> None:
    for template in ("pay:{other}", "pay:{grant}"):
        with pytest.raises(InvalidRequest):
            locks.target.once(template)(stage.api.function(Work().awaited, Work().__call__))


@pytest.mark.parametrize("payment", ["a//b", "x" * 1000, "a\nb", "\0", "\ud800"])
@needs("cells")
async def test_an_argument_that_makes_no_name_is_refused_before_the_work(
    stage: Stage, locks: Front, payment: str
) -> None:
    work = Work()

    async def awaited(grant: Any, payment: str) -> Any:
        return await work.awaited(grant)

    def plain(grant: Any, payment: str) -> Any:
        return work(grant)

    charge = locks.target.once("pay:{payment}")(stage.api.function(awaited, plain))
    with pytest.raises(InvalidRequest):
        await locks.actor.do(charge, payment)
    assert work.tokens == []


@needs("cells")
async def test_what_is_to_be_kept_for_too_long_is_refused_before_the_work(stage: Stage, locks: Front) -> None:
    work = Work()

    with pytest.raises(InvalidRequest, match="ten years"):
        await locks.once("k").run(work.by(stage), keep=11 * 365 * 86_400)
    with pytest.raises(InvalidRequest, match="ten years"):
        locks.once("k", keep=1e17)
    with pytest.raises(InvalidRequest, match="ten years"):
        locks.latch("k", count=2, keep=1e17)
    assert work.tokens == []

    assert await locks.once("k").run(work.by(stage), keep=10 * 365 * 86_400) == "done"


@needs("cells")
async def test_work_that_is_no_function_is_refused(locks: Front) -> None:
    with pytest.raises(InvalidRequest):
        await locks.once("k").run("not a function")
