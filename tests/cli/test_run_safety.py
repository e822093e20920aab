"""`holdfast run`: CMD never goes on without its lock."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.cli import exit_codes, processes
from holdfast.runtime import clock
from tests.cli.stage import BEATING, HOLDFAST, Stage, alive, beats, ending, eventually, wait_for_end, wait_for_file

FORKING = """
import os, signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(os.getpid(), child.pid, file=open(sys.argv[1], "w"))
time.sleep(600)
"""
"""A CMD with a child of its own."""

ELSEWHERE = """
from types import SimpleNamespace
from holdfast.cli import main, spawn
spawn.sys = SimpleNamespace(platform="darwin")
main.main()
"""
"""`holdfast` on a system that does not kill a child when its parent dies."""
systems = pytest.mark.parametrize("program", [HOLDFAST, (sys.executable, "-c", ELSEWHERE)], ids=["linux", "elsewhere"])


def beating(stage: Stage, *options: str) -> tuple[subprocess.Popen[str], Path, int]:
    """A run whose CMD writes down that it lives."""
    file = stage.folder / "beats"
    running = stage.start("run", *options, "k", "--", sys.executable, "-c", BEATING, str(file))
    eventually(lambda: file.exists() and file.read_text().count("\n") > 2, "the first beats")
    return running, file, int(file.read_text().split("\n")[0])


def forking(stage: Stage, *options: str, program: tuple[str, ...] = HOLDFAST) -> tuple[subprocess.Popen[str], int, int]:
    """A run whose CMD has a child."""
    file = stage.folder / "pids"
    running = stage.start("run", *options, "k", "--", sys.executable, "-c", FORKING, str(file), program=program)
    first, second = map(int, wait_for_file(file).split())
    return running, first, second


def guard_of(running: subprocess.Popen[str]) -> int:
    """The pid of a run's guard: its only child."""
    return int(Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()[0])


def test_a_command_is_dead_before_the_lock_can_be_lost_when_the_engine_is_out_of_reach(stage: Stage) -> None:
    running, file, pid = beating(stage, "--ttl", "1.5")
    with ending(pid):
        blocker = sqlite3.connect(stage.database, isolation_level=None)
        blocker.execute("BEGIN EXCLUSIVE")
        _, err = running.communicate()
        blocker.execute("ROLLBACK")
        blocker.close()
        with stage.client() as rival, rival.lock("k", wait=20.0):
            granted = clock.now()

    assert running.returncode == exit_codes.LOST
    assert "stopping CMD: no heartbeat was confirmed" in err
    assert beats(file)[-1] < granted
    assert not alive(pid)


def test_the_last_sign_of_a_command_comes_before_the_engine_lets_its_lock_go(stage: Stage) -> None:
    running, file, pid = beating(stage, "--ttl", "1.5")
    with ending(pid):
        blocker = sqlite3.connect(stage.database, isolation_level=None)
        blocker.execute("BEGIN EXCLUSIVE")
        (expires_at,) = blocker.execute("SELECT max(expires_at) FROM sessions").fetchone()
        wait_for_end(pid)
        blocker.close()
        running.communicate()

    assert beats(file)[-1] < expires_at


def test_a_command_that_heeds_sigterm_has_time_to_clean_up(stage: Stage) -> None:
    code = "trap 'echo cleaned up; exit 0' TERM; echo up > up; while :; do sleep 0.05; done"
    running = stage.start("run", "--ttl", "2", "k", "--", "sh", "-c", code)
    wait_for_file(stage.folder / "up")
    blocker = sqlite3.connect(stage.database, isolation_level=None)
    blocker.execute("BEGIN EXCLUSIVE")
    out, _ = running.communicate()
    blocker.close()

    assert (out, running.returncode) == ("cleaned up\n", exit_codes.LOST)


@systems
def test_sigkill_of_run_ends_the_command_and_its_children_at_once(stage: Stage, program: tuple[str, ...]) -> None:
    # The deadline would end them too, but long after the test has lost its patience.
    running, *pids = forking(stage, "--ttl", "600", "--grace", "120", program=program)
    with ending(*pids):
        running.kill()

        for pid in pids:
            wait_for_end(pid)


def test_a_command_that_ignores_sigterm_is_dead_before_the_lock_of_a_killed_run_is_free(stage: Stage) -> None:
    running, file, pid = beating(stage, "--ttl", "1")
    with ending(pid), stage.client() as rival:
        running.kill()
        with rival.lock("k", wait=20.0):
            granted = clock.now()
        wait_for_end(pid)

    assert beats(file)[-1] < granted


def test_a_command_is_dead_before_the_lock_of_a_stopped_run_is_free(stage: Stage) -> None:
    running, file, pid = beating(stage, "--ttl", "1")
    with ending(pid), stage.client() as rival:
        running.send_signal(signal.SIGSTOP)
        with rival.lock("k", wait=20.0):
            granted = clock.now()
        wait_for_end(pid)
        running.send_signal(signal.SIGCONT)
        running.communicate()

    assert beats(file)[-1] < granted
    assert running.returncode == exit_codes.LOST


@systems
def test_a_command_does_not_outlive_its_guard(stage: Stage, program: tuple[str, ...]) -> None:
    running, *pids = forking(stage, program=program)
    with ending(*pids):
        os.kill(guard_of(running), signal.SIGKILL)
        _, err = running.communicate()

        assert (running.returncode, err) == (exit_codes.LOST, "holdfast: the guard was killed, so CMD was too\n")
        for pid in pids:
            wait_for_end(pid)


def test_a_stopped_guard_does_not_save_a_command(stage: Stage) -> None:
    running, file, pid = beating(stage, "--ttl", "1")
    guard = guard_of(running)
    with ending(pid, guard):
        os.kill(guard, signal.SIGSTOP)
        blocker = sqlite3.connect(stage.database, isolation_level=None)
        blocker.execute("BEGIN EXCLUSIVE")
        wait_for_end(pid)
        blocker.execute("ROLLBACK")
        blocker.close()
        os.kill(guard, signal.SIGCONT)
        running.communicate()
        with stage.client() as rival, rival.lock("k", wait=20.0):
            granted = clock.now()

    assert beats(file)[-1] < granted


def test_a_guard_that_stays_stopped_is_not_waited_for(stage: Stage) -> None:
    running, _, pid = beating(stage, "--ttl", "1")
    guard = guard_of(running)
    with ending(pid, guard), stage.client() as rival:
        os.kill(guard, signal.SIGSTOP)
        rival.break_lock("k")
        running.communicate()

        assert running.returncode == exit_codes.LOST
        assert not alive(pid)
        assert not alive(guard)


def test_a_reader_of_stderr_that_leaves_does_not_save_a_command(stage: Stage) -> None:
    reader, writer = os.pipe()
    running = stage.start("run", "k", "--", "sh", "-c", "echo $$ > up; exec sleep 600", stderr=writer)
    pid = int(wait_for_file(stage.folder / "up"))
    os.close(reader)
    os.close(writer)
    with ending(pid), stage.client() as rival:
        rival.break_lock("k")
        running.communicate()

        assert running.returncode == exit_codes.LOST
        assert not alive(pid)


@pytest.mark.parametrize(("option", "silent"), [("--json", False), ("--quiet", True)])
def test_the_story_of_a_lost_lock_is_json_or_nothing_when_asked_for(stage: Stage, option: str, silent: bool) -> None:
    running, _, pid = beating(stage, option)
    with ending(pid), stage.client() as rival:
        rival.break_lock("k")
        _, err = running.communicate()
    events = [json.loads(line)["event"] for line in err.splitlines()]

    assert (events == []) is silent
    assert silent or {"granted", "warning", "stopping", "ended"} <= set(events)


@pytest.mark.parametrize("force", [False, True])
def test_a_broken_lock_ends_the_command_and_its_children(stage: Stage, force: bool) -> None:
    running, *pids = forking(stage)
    with ending(*pids), stage.client() as rival:
        assert rival.break_lock("k", force=force) == 1
        _, err = running.communicate()

        assert running.returncode == exit_codes.LOST
        assert "an operator broke it" in err
        for pid in pids:
            wait_for_end(pid)


def test_a_broken_lock_goes_to_the_next_only_after_the_command_has_ended(stage: Stage) -> None:
    running, _, pid = beating(stage, "--ttl", "8")
    with ending(pid), stage.client() as rival:
        rival.break_lock("k")
        gone = not alive(pid)
        running.communicate()

    assert gone
    assert running.returncode == exit_codes.LOST


ORPHANING = """
import os, time
reader, writer = os.pipe()
if not os.fork():
    middle = os.getpid()
    if not os.fork():
        while os.getppid() == middle:
            time.sleep(0.01)
        os.write(writer, f"{os.getpid()} {os.getppid()}".encode())
    os._exit(0)
os.wait()
orphan, parent = map(int, os.read(reader, 100).split())
print(parent == os.getppid())
while os.path.exists(f"/proc/{orphan}"):
    time.sleep(0.01)
print("cleared away")
"""
"""A CMD that has a grandchild whose parent ends before it."""


def test_an_orphan_of_the_command_leaves_no_zombie(stage: Stage) -> None:
    """Whatever the first process of the system does, or if it is this one."""
    done = stage.call("run", "k", "--", sys.executable, "-c", ORPHANING)

    assert done.stdout == "True\ncleared away\n"


def test_a_group_of_zombies_is_empty_and_a_zombie_is_not_alive() -> None:
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    os.killpg(child, 0)

    assert processes.is_empty(child)
    assert not processes.is_alive(child)
    assert not processes.is_empty(os.getpgrp())
    assert processes.is_alive(os.getpid())
    os.waitpid(child, 0)
    assert processes.is_empty(child)
    assert not processes.is_alive(child)


def test_max_hold_stops_the_command_before_the_lock_goes_to_the_next(stage: Stage) -> None:
    running, file, pid = beating(stage, "--max-hold", "0.8")
    with ending(pid), stage.client() as rival:
        with rival.lock("k", wait=20.0):
            granted = clock.now()
        _, err = running.communicate()

    assert running.returncode == exit_codes.LOST
    assert "as long as --max-hold allows" in err
    assert beats(file)[-1] < granted


def test_a_command_that_outlasts_many_ttls_is_not_disturbed(stage: Stage) -> None:
    started = time.monotonic()
    done = stage.call("run", "--ttl", "0.5", "k", "--", "sleep", "2")

    assert (done.returncode, done.stderr) == (0, "")
    assert time.monotonic() - started > 2


def test_what_a_finished_command_leaves_behind_is_left_alone(stage: Stage) -> None:
    code = "sleep 600 >/dev/null 2>&1 & echo $! > left"
    assert stage.call("run", "k", "--", "sh", "-c", code).returncode == 0
    pid = int(wait_for_file(stage.folder / "left"))

    with ending(pid):
        assert alive(pid)
