"""`holdfast run`: signals are for CMD while it runs, and end a wait otherwise."""

from __future__ import annotations

import signal
import sys

import pytest

from holdfast.cli import exit_codes
from tests.cli.stage import Stage, wait_for_file, wait_for_waiters

TELLING = """
import signal, sys, time
def tell(number, frame):
    print(signal.Signals(number).name)
    sys.exit(7)
for name in sys.argv[1:]:
    signal.signal(getattr(signal, name), tell)
print(1, file=open("up", "w"))
while True:
    time.sleep(0.05)
"""
"""A CMD that says which signal it got.

It does not sleep once for all: a signal that comes just before the system is asked for it would wait for its end.
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"])
def test_a_signal_is_passed_on_and_the_exit_code_is_what_the_command_makes_of_it(stage: Stage, name: str) -> None:
    running = stage.start("run", "k", "--", sys.executable, "-c", TELLING, name)
    wait_for_file(stage.folder / "up")

    running.send_signal(getattr(signal, name))

    assert running.communicate()[0] == f"{name}\n"
    assert running.returncode == 7


def test_a_signal_reaches_the_children_of_the_command_too(stage: Stage) -> None:
    (stage.folder / "telling.py").write_text(TELLING)
    script = f"trap : TERM; '{sys.executable}' telling.py SIGTERM; echo $?"
    running = stage.start("run", "k", "--", "sh", "-c", script)
    wait_for_file(stage.folder / "up")

    running.terminate()

    assert running.communicate()[0] == "SIGTERM\n7\n"


def test_a_command_that_dies_of_a_passed_signal_gives_128_and_its_number(stage: Stage) -> None:
    running = stage.start("run", "k", "--", sys.executable, "-c", TELLING)
    wait_for_file(stage.folder / "up")

    running.terminate()
    running.communicate()

    assert running.returncode == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, exit_codes.INTERRUPTED), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
)
def test_a_signal_ends_a_wait_and_leaves_no_place_in_line(stage: Stage, number: int, code: int) -> None:
    with stage.client() as rival, rival.lock("k"):
        waiting = stage.start("run", "--quiet", "k", "--", "echo", "never")
        wait_for_waiters(rival, "k", 1)

        waiting.send_signal(number)

        assert waiting.communicate() == ("", "")
        assert waiting.returncode == code
        assert rival.inspect("k").waiters == ()


def test_a_signal_that_was_ignored_stays_ignored(stage: Stage) -> None:
    code = "import signal; print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)"

    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    assert stage.call("run", "k", "--", sys.executable, "-c", code, preexec_fn=ignore).stdout == "True\n"


def test_the_command_does_not_inherit_that_python_ignores_sigpipe(stage: Stage) -> None:
    status = stage.call("run", "k", "--", "sh", "-c", "grep SigIgn /proc/self/status").stdout

    ignored = int(status.split()[1], 16)
    assert not ignored & (1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1))
