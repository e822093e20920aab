"""A command that is asked to end takes along what it has started."""

from __future__ import annotations

import os
import signal
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from holdfast.cli import exit_codes
from tests.cli.stage import Stage, alive, ending, eventually

ENDING = [(signal.SIGINT, exit_codes.INTERRUPTED), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]


def listen_to_ctrl_c() -> None:
    """A run of the tests in the background ignores Ctrl-C, and hands that on."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def at_work_in(folder: Path) -> list[int]:
    """The processes whose arguments name the folder, or that work in it."""
    return [int(process.name) for process in Path("/proc").glob("[0-9]*") if str(folder) in _facts(process)]


def _facts(process: Path) -> str:
    try:
        return (process / "cmdline").read_text(errors="replace") + os.readlink(process / "cwd")
    except OSError:
        return ""


@pytest.mark.parametrize(("number", "code"), ENDING)
def test_a_demo_that_is_asked_to_end_leaves_no_process_and_no_file(
    stage: Stage, tmp_path: Path, number: int, code: int
) -> None:
    (temporary := tmp_path / "temporary").mkdir()
    demo = stage.start("demo", "--json", env={**stage.env, "TMPDIR": str(temporary)}, preexec_fn=listen_to_ctrl_c)
    assert demo.stdout is not None
    # One of the two stands still at that moment: it would not even notice that it is alone.
    assert any('"stopped"' in line for line in demo.stdout)
    started = at_work_in(temporary)
    assert len(started) == 2

    with ending(*started):
        demo.send_signal(number)
        demo.communicate()

        assert demo.returncode == code
        assert [pid for pid in started if alive(pid)] == []
    assert list(temporary.iterdir()) == []


DROPPING = """
import os, sys, time, weakref
from holdfast.cli.interruption import Interrupted, Interruptible

class Thing: ...

def hit(_):
    os.kill(os.getpid(), int(sys.argv[1]))
    sum(range(1000))

dropped = []

def linger(frame, event, _):
    if event == "return" and frame.f_code is Interruptible.dropped.__code__:
        dropped.append("dropped")
        time.sleep(float(sys.argv[2]))

sys.setprofile(linger)
with Interruptible():
    try:
        thing = Thing()
        reference = weakref.ref(thing, hit)
        del thing
        time.sleep(600)
    except (KeyboardInterrupt, Interrupted) as heard:
        print(*dropped, type(heard).__name__)
"""
"""A signal comes while a callback runs, and Python drops what its handler raises."""


@pytest.mark.parametrize("busy", [0.0, 0.2], ids=["", "on a busy machine"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_python_drops_is_heard_a_moment_later(stage: Stage, number: int, busy: float) -> None:
    program = (sys.executable, "-c", DROPPING, str(int(number)), str(busy))
    done = stage.call(program=program, preexec_fn=listen_to_ctrl_c)

    heard = "KeyboardInterrupt" if number == signal.SIGINT else "Interrupted"
    assert (done.stdout, done.stderr) == (f"dropped {heard}\n", "")


EARLY = """
import os, signal, sys

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "holdfast":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder)
from holdfast_command import main
main()
"""
"""Ctrl-C is pressed while the command line is being imported."""


def test_ctrl_c_during_the_imports_ends_without_a_traceback(stage: Stage) -> None:
    done = stage.call(program=(sys.executable, "-c", EARLY), preexec_fn=listen_to_ctrl_c)

    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_the_installed_command_begins_outside_the_package() -> None:
    (script,) = [entry for entry in entry_points(group="console_scripts") if entry.name == "holdfast"]

    assert script.value == "holdfast_command:main"


@pytest.mark.parametrize(("number", "code"), ENDING)
def test_a_verification_that_is_asked_to_end_leaves_no_server_and_no_file(
    stage: Stage, tmp_path: Path, number: int, code: int
) -> None:
    (temporary := tmp_path / "temporary").mkdir()
    verify = stage.start(
        "verify", "redis", "--seconds", "600", "--clients", "2", "--no-controls", "--workloads", "mutex",
        env={**stage.env, "TMPDIR": str(temporary)}, preexec_fn=listen_to_ctrl_c,
    )  # fmt: skip
    # The server and both clients.
    started = eventually(lambda: found if len(found := at_work_in(temporary)) >= 3 else None, "clients at work")

    with ending(*started):
        verify.send_signal(number)
        if number != signal.SIGINT:
            # A terminal that is closed says so more than once.
            verify.send_signal(number)
        _, err = verify.communicate()

        assert verify.returncode == code, err
        assert [pid for pid in started if alive(pid)] == []
    assert list(temporary.iterdir()) == []
