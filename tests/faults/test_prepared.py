"""A child that was forked from a prepared process is like one that was executed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
LOOK = [sys.executable, "-m", "tests.faults.child", "tests.faults.surroundings:look", "[]"]
STAY = [sys.executable, "-m", "tests.faults.child", "tests.faults.surroundings:stay", "[]"]
EXECUTED = {"executable": sys.executable}
"""An option that a prepared process has no way to follow."""


def look(**options: Any) -> tuple[Any, str, str, int]:
    """What a child sees, and what this process sees of it."""
    # Said, because readline changes what is inherited without Python's knowledge.
    env = dict(os.environ)
    options = {"input": "asked", "text": True, "capture_output": True, "cwd": ROOT, "env": env, **options}
    done = subprocess.run(LOOK, check=False, timeout=60.0, **options)
    _, told, rest = done.stdout.split("\n")
    return json.loads(told), rest, done.stderr, done.returncode


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"start_new_session": True},
        {"process_group": 0},
        {"env": {"PATH": os.environ["PATH"], "ONLY": "this"}},
        {"stdin": subprocess.DEVNULL, "input": None},
    ],
    ids=["plain", "session", "group", "env", "nothing-to-read"],
)
def test_it_sees_nothing_that_one_that_was_executed_does_not(options: dict[str, Any]) -> None:
    if "env" in options:
        # What Python reads as it starts is as it is here, or nobody is asked.
        options["env"] |= {key: value for key, value in os.environ.items() if key.startswith(("PYTHON", "L", "TZ"))}

    prepared, executed = look(**options), look(**options, **EXECUTED)

    assert {key: (prepared[0][key], seen) for key, seen in executed[0].items() if prepared[0][key] != seen} == {}
    assert prepared[1:] == executed[1:]
    assert prepared[0]["parent"] == os.getpid()
    assert prepared[3] == 3


def test_it_dies_of_a_signal_like_any_other_child() -> None:
    with subprocess.Popen(STAY, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert json.loads(child.stdout.readline()) == {"pid": child.pid}
        child.send_signal(signal.SIGKILL)

        assert child.wait(60.0) == -signal.SIGKILL
    with pytest.raises(ChildProcessError):
        os.waitpid(child.pid, os.WNOHANG)


def test_orphans_of_others_do_not_become_children_of_this_process() -> None:
    subprocess.run(LOOK, cwd=ROOT, input="", text=True, capture_output=True, check=False)
    orphan = int(subprocess.check_output(["sh", "-c", "sleep 600 >&- 2>&- & echo $!"]))
    parent = Path(f"/proc/{orphan}/stat").read_text().rpartition(")")[2].split()[1]
    os.kill(orphan, signal.SIGKILL)

    assert int(parent) != os.getpid()
