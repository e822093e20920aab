"""On a terminal: the live line of a wait, and the keys that reach CMD."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import holdfast
from holdfast.cli import exit_codes
from tests.cli.stage import HOLDFAST, Stage, ending, eventually, wait_for_end, wait_for_file, wait_for_waiters
from tests.cli.terminals import Terminal
from tests.cli.test_interruption import at_work_in
from tests.faults.children import state

CTRL_C, CTRL_Z = "\x03", "\x1a"


def test_a_wait_shows_the_holder_and_the_place_in_line(stage: Stage) -> None:
    with stage.client() as rival:
        with rival.lock("k"):
            terminal = Terminal(stage, "run", "k", "--", "echo", "it is mine")
            seen = terminal.expect("waiting for 'k': place 1 in line, held by rival@")
        terminal.expect("it is mine")

    assert "\x1b[" in seen
    assert terminal.end() == 0


def test_no_color_is_respected(stage: Stage) -> None:
    stage.env["NO_COLOR"] = "1"
    with stage.client() as rival, rival.lock("k"):
        terminal = Terminal(stage, "show", "k")
        terminal.end()

    assert "exclusive" in terminal.seen
    assert "\x1b[3" not in terminal.seen


def test_a_table_has_colour_on_a_terminal(stage: Stage) -> None:
    with stage.client() as rival, rival.lock("k"):
        terminal = Terminal(stage, "show", "k")
        terminal.end()

    assert "\x1b[32mheld" in terminal.seen


def test_the_command_reads_from_the_terminal(stage: Stage) -> None:
    terminal = Terminal(stage, "run", "k", "--", "sh", "-c", "read line; echo got $line")
    terminal.type("hello\n")

    terminal.expect("got hello")
    assert terminal.end() == 0


def test_ctrl_c_ends_the_command_and_is_seen_by_who_called(stage: Stage) -> None:
    terminal = Terminal(stage, "run", "k", "--", "sh", "-c", "echo up; exec sleep 600")
    terminal.expect("up")

    terminal.type(CTRL_C)

    # Ended by the signal itself, as a shell needs to see it to end its script too.
    assert terminal.end() == -signal.SIGINT


def test_ctrl_c_that_the_command_handles_leaves_the_exit_code_to_it(stage: Stage) -> None:
    terminal = Terminal(stage, "run", "k", "--", "sh", "-c", "trap 'exit 5' INT; echo up; while :; do sleep 0.05; done")
    terminal.expect("up")

    terminal.type(CTRL_C)

    assert terminal.end() == 5


def test_ctrl_c_ends_a_wait_and_leaves_no_place_in_line(stage: Stage) -> None:
    with stage.client() as rival, rival.lock("k"):
        terminal = Terminal(stage, "run", "k", "--", "true")
        wait_for_waiters(rival, "k", 1)
        terminal.expect("place 1")
        terminal.type(CTRL_C)

        # A shell shows it as 130.
        assert terminal.end() == -signal.SIGINT
        assert rival.inspect("k").waiters == ()


def test_ctrl_z_suspends_both_and_they_go_on_while_the_lock_is_held(stage: Stage) -> None:
    code = "import os; print(os.getpid(), file=open('up', 'w')); print('got', input())"
    terminal = Terminal(stage, "run", "--ttl", "60", "k", "--", sys.executable, "-c", code)
    pid = int(wait_for_file(stage.folder / "up"))

    terminal.type(CTRL_Z)
    eventually(lambda: state(pid) == state(terminal.process.pid) == "T", "both are stopped")
    os.kill(terminal.process.pid, signal.SIGCONT)
    terminal.type("more\n")

    terminal.expect("got more")
    assert terminal.end() == 0


def test_a_job_that_reads_in_the_background_stops_and_goes_on_in_the_foreground(stage: Stage) -> None:
    holdfast = " ".join(HOLDFAST)
    code = f"set -m; {holdfast} run --ttl 60 k -- sh -c 'read line; echo got $line' & "
    code += 'while [ -z "$(jobs -s)" ]; do sleep 0.05; done; fg'
    terminal = Terminal(stage, program=("bash", "-c", code))
    terminal.type("hello\n")

    terminal.expect("got hello")
    assert terminal.end() == 0


def test_a_job_that_is_brought_to_the_foreground_before_it_reads_does_not_stop(stage: Stage) -> None:
    holdfast = " ".join(HOLDFAST)
    waits = "echo up > up; while [ ! -e go ]; do sleep 0.05; done"
    code = f"set -m; {holdfast} run --ttl 60 k -- sh -c '{waits}; read line; echo got $line' & "
    # Not with a sleep: that would be a job of its own, and have the terminal for a while.
    code += "until [ -e up ]; do :; done; fg"
    terminal = Terminal(stage, program=("bash", "-c", code))
    wait_for_file(stage.folder / "up")
    eventually(lambda: os.tcgetpgrp(terminal.keys) != terminal.process.pid, "the job has the terminal")
    (stage.folder / "go").touch()
    terminal.type("hello\n")

    terminal.expect("got hello")
    assert terminal.end() == 0
    assert "Stopped" not in terminal.seen


def test_a_job_that_has_the_terminal_by_now_does_not_stop_for_it(stage: Stage) -> None:
    """It was brought to the foreground after CMD was stopped, and before `holdfast run` heard of that."""
    code = "import holdfast; from holdfast.cli.command import Command; command = Command(['true'])\n"
    code += "with holdfast.connect() as locks, locks.lock('k') as grant: command.suspend(grant, wants_terminal=True)\n"
    code += "command.close(); print('went on')"
    terminal = Terminal(stage, program=(sys.executable, "-c", code))

    terminal.expect("went on")
    assert terminal.end() == 0


def test_ctrl_c_ends_a_script_around_run_too(stage: Stage) -> None:
    script = f"{' '.join(HOLDFAST)} run k -- sh -c 'echo u''p; exec sleep 600'; echo went o''n"
    terminal = Terminal(stage, program=("bash", "-c", script))
    terminal.expect("up")

    terminal.type(CTRL_C)

    assert terminal.end() != 0
    assert "went on" not in terminal.seen


@pytest.mark.parametrize(
    ("command", "sign"),
    [
        ("run k -- true", "place 1"),
        ("elect --wait 600 k -- true", "place 1"),
        ("watch", "granted"),
        ("demo", "stopped"),
    ],
)
def test_ctrl_c_ends_a_script_around_a_command_that_waits(stage: Stage, command: str, sign: str) -> None:
    script = f"{' '.join(HOLDFAST)} {command}; echo went o''n"
    with stage.client() as rival, rival.lock("k"):
        leading = rival.election("k").campaign()
        terminal = Terminal(stage, program=("bash", "-c", script))
        with holdfast.owner("another"):
            eventually(lambda: pass_by(rival) and terminal.shows(sign), sign)

        terminal.type(CTRL_C)

        assert terminal.end() != 0
        assert "went on" not in terminal.seen
        leading.release()


def pass_by(client: holdfast.Client) -> bool:
    """Something for a watch to see."""
    with client.lock("passing"):
        return True


def test_ctrl_c_at_a_question_gives_130(stage: Stage) -> None:
    terminal = Terminal(stage, "advise")
    terminal.expect("Answer > ")
    terminal.wait_until_it_reads()

    terminal.type(CTRL_C)

    assert terminal.end() == exit_codes.INTERRUPTED


def test_a_suspended_command_is_dead_before_another_gets_its_lock(stage: Stage) -> None:
    code = "import os, time; print(os.getpid(), file=open('up', 'w')); time.sleep(600)"
    terminal = Terminal(stage, "run", "--ttl", "1", "k", "--", sys.executable, "-c", code)
    pid = int(wait_for_file(stage.folder / "up"))

    terminal.type(CTRL_Z)
    wait_for_end(pid)
    with stage.client() as rival, rival.lock("k", wait=20.0):
        os.kill(terminal.process.pid, signal.SIGCONT)

    assert terminal.end() == exit_codes.LOST


def test_a_suspended_command_that_is_killed_leaves_the_terminal_to_the_job_that_has_it(stage: Stage) -> None:
    holdfast = " ".join(HOLDFAST)
    code = f"set -m; {holdfast} run --ttl 1 k -- sh -c 'echo $$ > up; exec sleep 600'; echo next jo''b; cat"
    terminal = Terminal(stage, program=("bash", "-c", code))
    pid = int(wait_for_file(stage.folder / "up"))

    terminal.type(CTRL_Z)
    terminal.expect("next job")
    terminal.type("one\n")
    terminal.expect("one\r\none")
    eventually(lambda: not Path(f"/proc/{pid}").exists(), "the guard has cleared CMD away")
    for word in ("two", "three"):
        terminal.type(f"{word}\n")
        terminal.expect(f"{word}\r\n{word}")

    terminal.type(CTRL_C)
    os.killpg(os.getsid(terminal.process.pid), signal.SIGKILL)
    for process in at_work_in(stage.folder):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    terminal.end()
    assert "cat\r\n" not in terminal.seen


def test_a_terminal_that_a_job_of_the_command_had_is_given_back(stage: Stage) -> None:
    code = "set -m; sh -c 'echo $$ > up; exec sleep 600'"
    script = f'{" ".join(HOLDFAST)} run --ttl 60 k -- bash -c "$CODE"; read line; echo got $line'
    stage.env["CODE"] = code
    terminal = Terminal(stage, program=("bash", "-c", script))
    pid = int(wait_for_file(stage.folder / "up"))
    with ending(pid), stage.client() as rival:
        rival.break_lock("k")
        terminal.type("hello\n")

        terminal.expect("got hello")
        assert terminal.end() == 0


def test_break_asks_first_and_no_means_no(stage: Stage) -> None:
    with stage.client() as rival, rival.lock("k") as grant:
        terminal = Terminal(stage, "break", "k")
        assert "held by rival@" in terminal.expect("Break lock 'k'? [y/N]")
        terminal.type("n\n")

        assert terminal.end() == exit_codes.CONFLICT
        assert grant.valid


def test_break_goes_on_after_a_yes(stage: Stage) -> None:
    with stage.client() as rival:
        grant = rival.lock("k").acquire()
        terminal = Terminal(stage, "break", "k")
        terminal.expect("[y/N]")
        terminal.type("y\n")

        assert terminal.end() == 0
        assert grant.lost.wait(20)
