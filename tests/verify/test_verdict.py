"""The verdict: what was found beside what was promised, and the exit code that says it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.cli import verdict as terminal
from holdfast.engines import memory
from holdfast.engines.advisory import engine as advisory
from holdfast.engines.redis import engine as redis
from holdfast.engines.redlock import engine as redlock
from holdfast.engines.sqlite import engine as sqlite
from holdfast.model import Guarantees
from holdfast.verify.history import Call, Fault, History, Note, Record, Run
from holdfast.verify.promises import CLAIMS, struck
from holdfast.verify.verdict import judge
from tests.verify.told import call, healed, held, history, pause, saw, wrote

STRONG = Guarantees(
    consensus=True, durable=True, leased=True, fair=True, notified=True, deadlock_detection=True, fencing="strict",
    clock="monotonic",
)  # fmt: skip
COMMAND = "holdfast verify sqlite --seed 7"


def ran(*records: Record | list[Call], promised: Guarantees = STRONG, workload: str = "mutex", **facts: Any) -> History:
    run = Run("sqlite", workload, 7, COMMAND, 2.0, (), promised.as_dict(), **facts)
    return history(*records, run=run)


GOOD = ran(held("a", 1, 2, 1), held("b", 3, 4, 2))
BAD = ran(held("a", 1, 3, 1), held("b", 2, 4, 2))
CAUGHT = ran(held("a", 1, 3, 1), held("b", 2, 4, 2), workload="no-mutex", control="exclusion")
MISSED = ran(held("a", 1, 2, 1), held("b", 3, 4, 2), workload="no-mutex", control="exclusion")
SERVER_DIED = Fault("kill", "redis-1", 1.5, 1.6, {"fault": "kill-server"})


def state(verdict_of: list[History], claim: str) -> tuple[str, bool]:
    row = next(row for row in judge(verdict_of).rows if row.claim == claim)
    return row.state, row.promised


def test_a_run_without_a_violation_is_kept_and_exits_with_0() -> None:
    verdict = judge([GOOD, CAUGHT])

    assert (verdict.result, verdict.exit_code) == ("kept", 0)


def test_a_broken_promise_exits_with_1_and_tells_how_to_run_it_again() -> None:
    verdict = judge([GOOD, BAD, CAUGHT])

    assert (verdict.result, verdict.exit_code) == ("broken", 1)
    assert verdict.as_dict()["command"] == COMMAND


def test_a_control_that_passes_means_that_the_verifier_is_broken() -> None:
    verdict = judge([GOOD, MISSED])

    assert (verdict.result, verdict.exit_code) == ("verifier broken", 70)
    assert "Rely on none of it" in verdict.paragraph()


def test_a_missed_control_outweighs_everything_else_that_was_found() -> None:
    assert judge([BAD, MISSED]).result == "verifier broken"


def test_a_control_that_is_caught_says_nothing_about_the_engine() -> None:
    assert state([GOOD, CAUGHT], "exclusion") == ("kept", True)


def test_a_control_of_lost_updates_is_caught_without_a_fence() -> None:
    lost = ran(wrote("a", 1, 2, "x", fenced=False), saw("b", 3, 4), workload="unfenced", control="updates")

    assert judge([GOOD, lost]).controls[0].caught


def test_what_could_not_be_decided_exits_with_75(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.verify.checkers.cells.MOST_CONFIGURATIONS", 1000)
    cells = [call("cell_set", f"p{each}", 1, None, "unknown", value=f"v{each}") for each in range(20)]
    undecided = ran(*cells, call("cell_get", "r", 2, 3, value="never", version=9))
    verdict = judge([GOOD, undecided])

    assert (verdict.result, verdict.exit_code) == ("not decided", 75)


def test_a_run_in_which_nothing_was_tested_is_not_kept() -> None:
    assert judge([ran(call("acquire", "a", 1, 2, "failed"))]).exit_code == 75


def test_a_client_that_crashed_is_a_broken_promise() -> None:
    verdict = judge([GOOD], surprises=["c1: AssertionError"])

    assert verdict.exit_code == 1


def test_a_client_that_is_late_leaves_it_undecided_where_the_line_is_fair() -> None:
    unfair = ran(held("a", 1, 2, 1), promised=redlock.GUARANTEES)

    assert judge([GOOD], late=["c1"]).exit_code == 75
    assert judge([BAD], late=["c1"]).exit_code == 1
    assert judge([unfair], late=["c1"]).exit_code == 0
    assert "c1 had not come through" in judge([GOOD], late=["c1"]).paragraph()


def test_a_violation_that_is_not_promised_is_told_and_does_not_fail() -> None:
    forgot = ran(held("a", 1, 3, 1), SERVER_DIED, held("b", 2, 4, 2), promised=redis.GUARANTEES)
    verdict = judge([forgot])
    row = next(row for row in verdict.rows if row.claim == "exclusion")

    assert (row.word, verdict.exit_code) == ("broken, as it may be", 0)
    assert "not durable" in row.why
    assert row.why in verdict.paragraph()


PROMISED: dict[str, tuple[Guarantees, list[Record], str]] = {
    "a durable engine remembers": (sqlite.GUARANTEES, [SERVER_DIED], "exclusion"),
    "without a fault everybody excludes": (redlock.GUARANTEES, [], "exclusion"),
    "a paused client is covered by the lease": (redis.GUARANTEES, [pause("a", 1, 2)], "exclusion"),
    "tokens outlive the server": (redis.GUARANTEES, [SERVER_DIED], "tokens"),
    "progress is always due": (redlock.GUARANTEES, [SERVER_DIED], "progress"),
    "leaks are never allowed": (advisory.GUARANTEES, [SERVER_DIED], "leaks"),
    "a client's clock is nobody's": (redis.GUARANTEES, [Fault("clock", "a", 1, 2)], "exclusion"),
}
DOUBTED: dict[str, tuple[Guarantees, list[Record], str]] = {
    "memory forgets": (memory.GUARANTEES, [SERVER_DIED], "exclusion"),
    "redis forgets its line": (redis.GUARANTEES, [SERVER_DIED], "order"),
    "without a lease a cut is enough": (advisory.GUARANTEES, [Fault("cut", "a", 1, 2)], "exclusion"),
    "no consensus, no partition": (redis.GUARANTEES, [Fault("partition", "redis-1", 1, 2)], "exclusion"),
    "redlock is not fair": (redlock.GUARANTEES, [], "order"),
    "the server's clock was moved": (redis.GUARANTEES, [Fault("clock", "redis-1", 1, 2)], "tokens"),
    "nobody promises it without a fence": (STRONG, [], "unfenced updates"),
}


@pytest.mark.parametrize("name", PROMISED)
def test_what_an_engine_declares_is_demanded(name: str) -> None:
    promised, faults, claim = PROMISED[name]
    run = ran(held("a", 1, 2), *faults, promised=promised)

    assert CLAIMS[claim].doubt(run.run.guarantees, struck(run)) == ""


@pytest.mark.parametrize("name", DOUBTED)
def test_what_an_engine_does_not_declare_is_not_demanded(name: str) -> None:
    promised, faults, claim = DOUBTED[name]
    run = ran(held("a", 1, 2), *faults, promised=promised)

    assert CLAIMS[claim].doubt(run.run.guarantees, struck(run))


def seen(verdict_of: History, guarantee: str) -> str:
    return next(each.seen for each in judge([verdict_of]).declared if each.guarantee == guarantee)


def test_a_guarantee_is_kept_broken_or_not_tested() -> None:
    died = [SERVER_DIED]

    assert seen(ran(held("a", 1, 2, 1), held("b", 3, 4, 2), *died), "durable") == "kept"
    assert seen(ran(held("a", 1, 2, 2), held("b", 3, 4, 1), *died), "durable") == "broken"
    assert seen(ran(held("a", 1, 2, 1), held("b", 3, 4, 2)), "durable") == "not tested"
    assert seen(ran(held("a", 1, 2, 1), promised=redis.GUARANTEES), "durable") == "not promised"


def test_a_guarantee_is_not_blamed_for_what_another_one_does_not_promise() -> None:
    forgot = ran(held("a", 1, 3, 1), SERVER_DIED, pause("z", 1, 2), held("b", 2, 4, 2), promised=redis.GUARANTEES)

    assert seen(forgot, "leased") == "not tested"


def test_a_violation_is_excused_only_by_what_had_struck_before_it() -> None:
    broken = [held("a", 1, 3, 1), held("b", 2, 4, 2)]
    later = Fault("kill", "redis-1", 5.0, 6.0, {"fault": "kill-server"})
    more = [held("c", 6, 8, 3), held("d", 7, 9, 4)]

    assert state([ran(*broken, later, *more, promised=redis.GUARANTEES)], "exclusion") == ("broken", True)
    assert state([ran(later, *more, promised=redis.GUARANTEES)], "exclusion") == ("broken", False)


def test_tokens_are_not_blamed_for_grants_whose_order_only_exclusion_could_tell() -> None:
    divided = Fault("partition", "redis-1", 0.5, 9.0)
    late = [held("a", 2, 2.1, 5), held("b", 4, 5, 4, asked=1.5)]
    after = [held("a", 2, 2.1, 5), held("b", 4, 5, 4, asked=3)]

    assert state([ran(*late)], "tokens") == ("broken", True)
    assert state([ran(divided, *late, promised=redis.GUARANTEES)], "tokens") == ("kept", True)
    assert state([ran(divided, *after, promised=redis.GUARANTEES)], "tokens") == ("broken", True)


DIVIDED = Fault("partition", "redis-1", 0.5, 9.0, {"fault": "partition"})
OUSTED = Fault("pause", "redis-1", 1.5, 1.9, {"fault": "pause-server", "leader": True})
SAME_TOKEN: list[Record | list[Call]] = [held("a", 2, 3, 5), held("b", 2.5, 4, 5, asked=1.5)]


@pytest.mark.parametrize("fault", [DIVIDED, OUSTED], ids=lambda fault: fault.what)
def test_an_equal_token_of_two_primaries_is_reported_and_excused(fault: Fault) -> None:
    verdict = judge([ran(fault, *SAME_TOKEN, wrote("c", 6, 7, "x", token=9), promised=redis.GUARANTEES)])
    row = next(row for row in verdict.rows if row.claim == "tokens")

    assert (row.word, row.promised, verdict.exit_code) == ("broken, as it may be", False, 0)
    assert "there may be two primaries" in row.why
    assert f"'tokens' is not promised here ({row.why}), and was seen broken once." in verdict.paragraph()


ONE_COUNTER: dict[str, tuple[Guarantees, list[Record]]] = {
    "nothing has struck": (redis.GUARANTEES, []),
    "one server was killed, and is not durable": (redis.GUARANTEES, [SERVER_DIED]),
    "one server was paused": (redis.GUARANTEES, [Fault("pause", "redis-1", 1.5, 1.6, {"fault": "pause-server"})]),
    "a client was cut off": (redis.GUARANTEES, [Fault("cut", "a", 1.5, 1.6)]),
    "a partition between clients and servers that do not know each other": (
        redlock.GUARANTEES,
        [Fault("partition", "redis-1", 0.5, 9.0, {"fault": "partition", "clients_only": True})],
    ),
    "an engine with consensus was divided": (STRONG, [DIVIDED, OUSTED]),
    "it was divided later": (redis.GUARANTEES, [Fault("partition", "redis-1", 8.0, 9.0)]),
}


@pytest.mark.parametrize("name", ONE_COUNTER)
def test_an_equal_token_is_a_broken_promise_where_there_is_one_primary(name: str) -> None:
    promised, faults = ONE_COUNTER[name]
    verdict = judge([ran(*faults, *SAME_TOKEN, promised=promised)])
    row = next(row for row in verdict.rows if row.claim == "tokens")

    assert (row.state, row.promised, verdict.exit_code) == ("broken", True, 1)


def test_two_primaries_excuse_no_equal_token_of_requests_that_followed_each_other() -> None:
    later = [held("a", 2, 5, 5), held("b", 4, 6, 5, asked=3)]

    assert state([ran(DIVIDED, *later, promised=redis.GUARANTEES)], "tokens") == ("broken", True)


def test_an_update_lost_to_an_equal_token_of_two_primaries_is_excused_and_no_other() -> None:
    def lost(token: int) -> list[Record | list[Call]]:
        first, second = held("a", 2, 3.5, 5, claim="x"), held("b", 2.5, 5, token, claim="y", asked=1.5)
        written = [
            wrote("a", 3, 3.1, "from a", token=5, claim="x"),
            wrote("b", 4, 4.1, "from b", token=token, claim="y"),
        ]
        return [first, second, *written, saw("c", 7, 8, "from b")]

    assert state([ran(DIVIDED, *lost(5), promised=redis.GUARANTEES)], "updates") == ("broken", False)
    assert state([ran(SERVER_DIED, *lost(5), promised=redis.GUARANTEES)], "updates") == ("broken", True)
    assert state([ran(DIVIDED, *lost(6), promised=redis.GUARANTEES)], "updates") == ("broken", True)


def test_what_held_although_it_need_not_speaks_for_the_guarantee() -> None:
    held_on = ran(held("a", 1, 2, 1), SERVER_DIED, pause("a", 1, 2), held("b", 3, 4, 2), promised=redis.GUARANTEES)

    assert seen(held_on, "leased") == "kept"


def test_json_has_the_story_and_the_exit_code() -> None:
    told = json.loads(json.dumps(judge([BAD]).as_dict()))
    row = next(row for row in told["claims"] if row["claim"] == "exclusion")

    assert told["exit_code"] == 1
    assert row["story"][-1].endswith("=> b (token 2) and a (token 1) both held 'k' for 1.0000 s")


def test_the_terminal_shows_the_claim_the_story_and_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.show(judge([BAD, CAUGHT], {"partition": "there is one server"}))
    out = capsys.readouterr().out

    for text in ("exclusion", "both held 'k'", COMMAND, "partition: there is one server", "caught"):
        assert text in out
    assert out.rstrip().endswith("broken")


def test_the_shortest_story_of_several_runs_is_told() -> None:
    long = ran(*[held(process, 1, 9, kind="semaphore", limit=3) for process in "abcd"], healed(10, 5), Note("end", 30))
    row = next(row for row in judge([long, BAD]).rows if row.claim == "exclusion")

    assert (row.workload, row.total) == ("mutex", 2)
    assert row.shortest is not None
    assert "token 2" in row.shortest.summary
