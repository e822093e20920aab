"""`ls`, `show`, `why`, `watch`, `break`, `guarantees`, `tokens`: in text and in JSON."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast.cli import exit_codes
from holdfast.model import HIGHEST_RAISE
from tests.cli.stage import Stage, eventually, wait_for_file, wait_for_waiters


class Acting:
    """An owner of its own in a thread: takes locks one after the other, and lets go when told."""

    def __init__(self, *locks: holdfast.Lock) -> None:
        self.locks, self.grants = locks, list[holdfast.Grant]()
        self.leave = threading.Event()
        self.thread = threading.Thread(target=self.act)
        self.thread.start()

    def act(self) -> None:
        for lock in self.locks:
            self.grants.append(lock.acquire())
        self.leave.wait(60)
        for grant in self.grants:
            grant.release()

    def __enter__(self) -> Acting:
        eventually(lambda: bool(self.grants), "the first lock")
        return self

    def __exit__(self, *_: object) -> None:
        self.leave.set()
        self.thread.join()


def test_ls_lists_the_locks_in_use_as_aligned_text(stage: Stage) -> None:
    with stage.client() as rival, rival.lock("db/users"), rival.semaphore("gpu", limit=4):
        lines = stage.call("ls").stdout.splitlines()

    assert lines[0].split() == ["NAME", "KIND", "HELD", "BY", "FOR", "TOKEN", "WAITING"]
    assert [line.split()[0] for line in lines[1:]] == ["db/users", "gpu"]
    assert lines[2].split()[1:4] == ["semaphore", "of", "4"]
    assert {line.index("rival@") for line in lines[1:]} == {lines[0].index("HELD BY")}


def test_ls_lists_only_what_lies_under_the_prefix_and_of_the_kind(stage: Stage) -> None:
    with stage.client() as rival, rival.lock("db/users"), rival.lock("other"), rival.semaphore("db/gpu", limit=4):
        assert [info["name"] for info in stage.json("ls", "db/")] == ["db/users", "db/gpu"]
        assert [info["name"] for info in stage.json("ls", "--kind", "semaphore")] == ["db/gpu"]


def test_ls_of_nothing_is_empty(stage: Stage) -> None:
    assert stage.call("ls").stdout == ""
    assert stage.json("ls") == []


def test_show_shows_holders_and_waiters_in_order(stage: Stage) -> None:
    with stage.client() as rival, rival.lock("k", note="first\x1b[31m") as grant:
        waiting = stage.start("run", "--note", "second", "k", "--", "true")
        wait_for_waiters(rival, "k", 1)
        text = stage.call("show", "k").stdout.splitlines()
        info = stage.json("show", "k")
        grant.check()
    waiting.communicate()

    assert text[0] == "lock 'k'"
    assert [line.split()[0] for line in text[2:]] == ["held", "waits"]
    assert str(grant.token) in text[2]
    assert text[2].endswith("first\\x1b[31m")
    assert [party["note"] for party in info["waiters"]] == ["second"]
    assert info["holders"][0]["token"] == grant.token


def test_show_finds_what_is_in_use_under_the_name_whatever_its_kind(stage: Stage) -> None:
    with stage.client() as rival, rival.semaphore("gpu", limit=3):
        assert stage.json("show", "gpu")["kind"] == "semaphore"
        assert stage.call("show", "--kind", "lock", "gpu").stdout == "lock 'gpu' is free\n"


def test_show_of_a_free_lock_says_so(stage: Stage) -> None:
    assert stage.call("show", "k").stdout == "lock 'k' is free\n"
    assert stage.json("show", "k")["holders"] == []


def test_why_follows_the_chain_across_names_to_who_everything_waits_for(stage: Stage) -> None:
    with (
        stage.client() as rival,
        Acting(rival.lock("b")) as last,
        Acting(rival.lock("a"), rival.lock("b")) as middle,
    ):
        wait_for_waiters(rival, "b", 1)
        with Acting(rival.lock("c"), rival.lock("a")):
            wait_for_waiters(rival, "a", 1)
            text = stage.call("why", "a").stdout.splitlines()
            tree = stage.json("why", "a")
            last.leave.set()
            middle.leave.set()

    assert text[0] == "lock 'a'"
    assert text[1].startswith("├─ held by rival@")
    assert text[2].startswith("│  └─ waits for lock 'b', place 1 in line")
    assert text[3].startswith("│     └─ held by rival@")
    assert text[4].startswith("└─ 1. rival@")
    assert text[5].startswith("   └─ holds lock 'c'")
    assert text[6].startswith("everything waits for rival@")
    assert "holds lock 'b' and waits for nothing" in text[6]
    (wait,) = tree["holders"][0]["waits_for"]
    assert (wait["name"], wait["blocked_by"][0]["name"]) == ("b", "b")
    assert [root["name"] for root in tree["roots"]] == ["b"]


def test_why_names_a_subtree_above_that_is_in_the_way(stage: Stage) -> None:
    with stage.client() as rival, rival.lock("db", subtree=True):
        text = stage.call("why", "db/users").stdout

    assert "└─ lock 'db' and all under it, held by rival@" in text


def test_why_says_that_a_holder_was_stopped_or_killed(stage: Stage) -> None:
    running = stage.start("run", "--ttl", "60", "k", "--", "sh", "-c", "echo up > up; sleep 600")
    wait_for_file(stage.folder / "up")

    running.send_signal(signal.SIGSTOP)
    stopped = eventually(lambda: re.search(".*is stopped.*", stage.call("why", "k").stdout), "stopped")
    running.kill()
    running.communicate()
    killed = stage.call("why", "k").stdout

    assert f"process {running.pid} is stopped" in stopped[0]
    assert f"no process {running.pid} runs here any more" in killed


def test_why_of_a_free_lock_says_so(stage: Stage) -> None:
    assert stage.call("why", "k").stdout == "lock 'k' is free\n"


def watched(stage: Stage, act: Callable[[], None], *arguments: str) -> list[str]:
    """The lines that a watch prints while something happens, with the marks before and after it left out."""
    watching = stage.start("watch", *arguments)
    assert watching.stdout is not None
    lines: list[str] = []
    out = watching.stdout
    reader = threading.Thread(target=lambda: lines.extend(iter(out.readline, "")))
    reader.start()

    with stage.client() as marker:

        def mark(text: str) -> bool:
            marker.lock(f"db/{text}").acquire().release()
            return any(text in line for line in lines)

        eventually(lambda: mark("begin"), "the watch has begun")
        act()
        eventually(lambda: mark("done"), "the watch has seen all")
    watching.send_signal(signal.SIGINT)
    watching.wait()
    reader.join()
    assert watching.returncode == exit_codes.INTERRUPTED
    return [line for line in lines if "begin" not in line and "done" not in line]


def test_watch_prints_a_line_an_event_as_it_happens(stage: Stage) -> None:
    with stage.client() as rival:
        lines = watched(stage, lambda: rival.lock("db/k").acquire().release(), "db/")

    assert [line.split()[1:4] for line in lines] == [["granted", "lock", "'db/k'"], ["released", "lock", "'db/k'"]]


def test_watch_prints_a_json_object_a_line(stage: Stage) -> None:
    def act() -> None:
        rival.lock("elsewhere").acquire().release()
        rival.lock("db/k").acquire().release()

    with stage.client() as rival:
        events = [json.loads(line) for line in watched(stage, act, "db/", "--json")]

    assert [(event["type"], event["name"]) for event in events] == [("granted", "db/k"), ("released", "db/k")]
    assert events[0]["token"] > 0


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_break_makes_the_holders_let_go(stage: Stage, force: tuple[str, ...]) -> None:
    with stage.client() as rival:
        grant = rival.lock("k").acquire()
        done = stage.call("break", *force, "k")

        assert (done.returncode, done.stdout) == (0, "lock 'k': 1 holder let go\n")
        assert grant.lost.wait(20)
        assert stage.json("break", "k") == {"kind": "lock", "name": "k", "broken": 0, "forced": False}


def test_break_of_another_kind_than_is_in_use_says_which_is(stage: Stage) -> None:
    with stage.client() as rival:
        grant = rival.semaphore("gpu", limit=2).acquire()
        hint = stage.call("break", "gpu").stdout
        done = stage.json("break", "--kind", "semaphore", "gpu")

        assert hint == "nobody held lock 'gpu'; it is in use as semaphore: --kind semaphore\n"
        assert done["broken"] == 1
        assert grant.lost.wait(20)


def test_guarantees_are_what_the_engine_promises(stage: Stage) -> None:
    with stage.client() as rival:
        promised: dict[str, Any] = rival.guarantees.as_dict()
    text = stage.call("guarantees").stdout

    assert stage.json("guarantees") == {"engine": stage.url, **promised}
    assert promised["summary"] in text
    assert ["durable", "yes"] in [line.split() for line in text.splitlines()]


def test_tokens_raise_makes_later_tokens_larger(stage: Stage) -> None:
    above = 2**52
    done = stage.call("tokens", "raise", stage.url, "--above", str(above))

    assert (done.returncode, done.stdout) == (0, f"every later token is larger than {above}\n")
    with stage.client() as rival, rival.lock("k") as grant:
        assert grant.token > above


@pytest.mark.parametrize("above", [-1, HIGHEST_RAISE + 1])
def test_tokens_raise_refuses_what_is_no_token(stage: Stage, above: int) -> None:
    done = stage.call("tokens", "raise", stage.url, f"--above={above}")

    assert done.returncode == exit_codes.BAD_INPUT
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["ls", "show", "why", "watch", "break"])
def test_a_bad_name_gives_2_and_one_line_or_one_json_object(stage: Stage, command: str) -> None:
    plain = stage.call(command, "a//b")
    as_json = stage.call(command, "a//b", "--json")

    assert (plain.returncode, as_json.returncode) == (exit_codes.BAD_INPUT, exit_codes.BAD_INPUT)
    assert plain.stderr.startswith("holdfast: ")
    assert plain.stderr.count("\n") == 1
    assert json.loads(as_json.stderr)["error"] == "InvalidRequest"


def test_a_reader_that_leaves_early_is_no_error(stage: Stage) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with stage.client() as rival, rival.lock("k"):
        done = stage.call("ls", stdout=writer)
    os.close(writer)

    assert (done.returncode, done.stderr) == (exit_codes.BROKEN_PIPE, "")
