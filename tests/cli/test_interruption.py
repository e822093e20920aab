"""A command that is asked to end takes along what it has started."""

from __future__ import annotations

import os
import signal
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
