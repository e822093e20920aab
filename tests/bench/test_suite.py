"""Every measure runs on real engines, and its figures make sense."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.bench import report, suite
from holdfast.bench.handoff import ProcessHandOff, ThreadHandOff
from holdfast.bench.holding import Holding
from holdfast.bench.measure import Measure
from holdfast.bench.pairs import TaskPairs, ThreadPairs
from holdfast.bench.plan import Plan
from holdfast.bench.sleeping import SleepingHandOff
from holdfast.bench.subject import OURS, find
from holdfast.bench.table import TableTransitions
from holdfast.bench.worker_process import WorkerProcess
from holdfast.errors import HoldfastError

PLAN = Plan(seconds=0.02, rounds=2, grants=3, patience=30.0, hand_offs=3, hold=0.001, watch=0.05)


def run(url: str | None, *measures: Measure, peer: str | None = None) -> suite.Run:
    return suite.run(url, peer, 5.0, PLAN, measures=measures)


@pytest.fixture(params=["memory://bench-suite", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'locks.db'}" if request.param == "sqlite" else str(request.param)


@pytest.mark.parametrize("measure", [ThreadPairs(1), ThreadPairs(4), TaskPairs(1), TaskPairs(4)], ids=lambda m: m.case)
def test_uncontended_pairs_are_counted_in_every_round(url: str, measure: Measure) -> None:
    (result,) = run(url, measure).results

    assert len(result.ours) == PLAN.rounds
    assert all(figures["pairs_per_s"] > 0 for figures in result.ours)


def test_waiters_in_threads_all_get_their_share(url: str) -> None:
    (result,) = run(url, ThreadHandOff(4)).results

    for figures in result.ours:
        assert figures["fewest_grants"] >= PLAN.grants
        assert 0 < figures["p50_ms"] <= figures["p99_ms"]
        assert figures["max_over_mean"] >= 1
        assert figures["requests_per_grant"] >= 2


def test_waiters_in_several_processes_all_get_their_share(tmp_path: Path) -> None:
    (result,) = run(f"sqlite:///{tmp_path / 'locks.db'}", ProcessHandOff(4, 2)).results

    for figures in result.ours:
        assert figures["fewest_grants"] >= PLAN.grants
        assert figures["grants_per_s"] > 0
        assert figures["requests_per_grant"] >= 2


def test_a_sleeping_waiter_in_another_process_is_measured_against_the_peer() -> None:
    (result,) = run(None, SleepingHandOff(), peer="filelock").results

    assert all(0 < figures["p50_ms"] <= figures["p99_ms"] for figures in (*result.ours, *result.peer))
    assert result.ratios()["p50_ms"] > 0


def test_measures_across_processes_are_left_out_where_the_locks_do_not_cross() -> None:
    assert run("memory://", ProcessHandOff(4, 2), SleepingHandOff()).results == ()


def test_holding_locks_adds_no_thread(url: str) -> None:
    (result,) = run(url, Holding(20)).results

    assert result.ours[0]["threads_added"] == 0
    assert result.ours[0]["taken_per_s"] > 0
    assert result.ours[0]["rss_mb"] >= 0


def test_the_lock_table_is_measured_without_an_engine() -> None:
    (result,) = run("memory://", TableTransitions()).results

    assert result.ours[0]["transitions_per_s"] > 0


def test_only_the_groups_that_were_asked_for_are_run() -> None:
    found = suite.run("memory://", None, 5.0, PLAN, ["table"])

    assert [result.group for result in found.results] == ["table"]


def test_nothing_stays_beside_the_users_database(tmp_path: Path) -> None:
    run(f"sqlite:///{tmp_path / 'locks.db'}", ThreadPairs(1), peer="filelock")

    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("holdfast-bench-")] == []


def test_a_worker_that_dies_is_reported_and_does_not_hang_the_run(tmp_path: Path) -> None:
    with suite.somewhere(f"sqlite:///{tmp_path / 'missing' / 'locks.db'}", 5.0) as where:
        subject = find(OURS, where)
        with WorkerProcess("hold", subject, {"locks": 1, "watch": 0.0}) as worker, pytest.raises(HoldfastError):
            worker.hear("done")


def test_the_json_has_the_documented_fields() -> None:
    data = json.loads(json.dumps(report.as_data(run(None, ThreadPairs(1), peer="filelock")), allow_nan=False))

    assert set(data) == {"url", "peer", "ttl", "python", "plan", "results"}
    assert data["plan"]["rounds"] == PLAN.rounds
    (result,) = data["results"]
    assert set(result) == {"measure", "case", "holdfast", "peer", "ratio", "rounds"}
    assert (result["measure"], result["case"]) == ("pairs", "blocking, 1 thread")
    assert result["holdfast"]["pairs_per_s"] > 0
    assert result["peer"]["pairs_per_s"] > 0
    assert result["ratio"]["pairs_per_s"] > 0
    assert len(result["rounds"]["holdfast"]) == len(result["rounds"]["peer"]) == PLAN.rounds
