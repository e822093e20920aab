"""`holdfast elect`: CMD runs only while leading."""

from __future__ import annotations

import signal
import sqlite3
import sys

from holdfast.cli import exit_codes
from tests.cli.stage import Stage, eventually, wait_for_waiters

LEADING = """
import os, sys, time
name = sys.argv[1]
with open("story", "a", buffering=1) as story:
    print("begin", name, os.environ["HOLDFAST_TOKEN"], file=story)
while not os.path.exists(f"end-{name}"):
    time.sleep(0.01)
with open("story", "a", buffering=1) as story:
    print("end", name, os.environ["HOLDFAST_TOKEN"], file=story)
sys.exit(4)
"""


def candidate(name: str, *options: str) -> tuple[str, ...]:
    return ("elect", *options, "boss", "--", sys.executable, "-c", LEADING, name)


def story(stage: Stage) -> list[str]:
    file = stage.folder / "story"
    return [" ".join(line.split()[:2]) for line in file.read_text().splitlines()] if file.exists() else []


def test_of_two_candidates_one_leads_and_the_other_follows_with_a_higher_token(stage: Stage) -> None:
    first = stage.start(*candidate("one"))
    eventually(lambda: story(stage) == ["begin one"], "one leads")
    second = stage.start(*candidate("two"))
    with stage.client() as looker:
        wait_for_waiters(looker, "boss", 1, kind="election")
        (stage.folder / "end-one").touch()
        first.communicate()
        eventually(lambda: len(story(stage)) == 3, "two leads")
    (stage.folder / "end-two").touch()
    second.communicate()

    assert story(stage) == ["begin one", "end one", "begin two", "end two"]
    assert (first.returncode, second.returncode) == (4, 4)
    tokens = [int(line.split()[2]) for line in (stage.folder / "story").read_text().splitlines()]
    assert tokens[0] < tokens[2]


def test_others_see_the_value_of_the_leader(stage: Stage) -> None:
    running = stage.start(*candidate("one", "--value", "host:9000"))
    eventually(lambda: story(stage) == ["begin one"], "one leads")
    with stage.client() as looker:
        leader = looker.election("boss").leader()
    running.terminate()
    running.communicate()

    assert leader is not None
    assert leader.value == "host:9000"
    assert running.returncode == 128 + signal.SIGTERM


def test_a_leader_that_was_deposed_campaigns_again(stage: Stage) -> None:
    running = stage.start(*candidate("one"))
    eventually(lambda: story(stage) == ["begin one"], "one leads")
    with stage.client() as rival:
        rival.break_lock("boss", kind="election")
        eventually(lambda: story(stage) == ["begin one", "begin one"], "one leads again")
    (stage.folder / "end-one").touch()
    _, err = running.communicate()

    assert story(stage) == ["begin one", "begin one", "end one"]
    assert running.returncode == 4
    assert "no longer leading; campaigning again" in err


def test_once_means_that_losing_is_the_end(stage: Stage) -> None:
    running = stage.start(*candidate("one", "--once"))
    eventually(lambda: story(stage) == ["begin one"], "one leads")
    with stage.client() as rival:
        rival.break_lock("boss", kind="election")
    running.communicate()

    assert running.returncode == exit_codes.LOST


def test_a_leader_whose_engine_was_out_of_reach_leads_again_when_it_is_back(stage: Stage) -> None:
    running = stage.start(*candidate("one", "--ttl", "1"))
    eventually(lambda: story(stage) == ["begin one"], "one leads")
    assert running.stderr is not None
    blocker = sqlite3.connect(stage.database, isolation_level=None)
    blocker.execute("BEGIN EXCLUSIVE")
    while "no longer leading" not in running.stderr.readline():
        continue
    blocker.close()
    eventually(lambda: story(stage) == ["begin one", "begin one"], "one leads again")
    (stage.folder / "end-one").touch()
    running.communicate()

    assert running.returncode == 4


def test_a_campaign_that_takes_too_long_gives_1(stage: Stage) -> None:
    with stage.client() as rival, rival.election("boss").campaign():
        done = stage.call(*candidate("one", "--wait", "0.05"))

    assert done.returncode == exit_codes.CONFLICT
    assert story(stage) == []


def test_a_candidate_that_is_interrupted_leaves_no_place_in_line(stage: Stage) -> None:
    with stage.client() as rival, rival.election("boss").campaign():
        waiting = stage.start(*candidate("one"))
        wait_for_waiters(rival, "boss", 1, kind="election")
        waiting.terminate()
        waiting.communicate()

        assert waiting.returncode == 128 + signal.SIGTERM
        assert rival.inspect("boss", kind="election").waiters == ()
