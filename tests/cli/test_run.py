"""`holdfast run`: exclusion, exit codes, the environment, waiting."""

from __future__ import annotations

import json
import signal
import sys

import pytest

from holdfast import Deadlock, EngineUnavailable, InvalidRequest, LockLost, NotAcquired, Unsupported
from holdfast.cli import exit_codes
from holdfast.errors import HoldfastError
from tests.cli.stage import Stage, python, wait_for_file, wait_for_waiters

COUNT_UP = """
import pathlib, time
file = pathlib.Path("counter")
seen = int(file.read_text())
time.sleep(0.02)
file.write_text(str(seen + 1))
"""


def test_two_runs_of_one_name_never_overlap(stage: Stage) -> None:
    (stage.folder / "counter").write_text("0")

    processes = [stage.start("run", "counter", *python(COUNT_UP)) for _ in range(6)]

    assert [process.wait() for process in processes] == [0] * 6
    assert (stage.folder / "counter").read_text() == "6"


@pytest.mark.parametrize("code", [0, 3, 255])
def test_the_exit_code_is_that_of_the_command(stage: Stage, code: int) -> None:
    assert stage.call("run", "k", *python(f"raise SystemExit({code})")).returncode == code


def test_a_command_that_dies_of_a_signal_gives_128_and_its_number(stage: Stage) -> None:
    assert stage.call("run", "k", "--", "sh", "-c", "kill -KILL $$").returncode == 128 + signal.SIGKILL


@pytest.mark.parametrize("option", ["--wait", "--ttl", "--max-hold"])
@pytest.mark.parametrize("value", ["inf", "nan", "-1", "1e400", "9" * 400, "9" * 30], ids=lambda value: value[:5])
def test_a_time_that_is_none_or_too_long_is_refused(stage: Stage, option: str, value: str) -> None:
    done = stage.call("run", f"{option}={value}", "k", "--", "echo", "ran")

    assert (done.returncode, done.stdout) == (exit_codes.BAD_INPUT, "")
    assert "Traceback" not in done.stderr


def test_a_command_that_is_not_found_gives_127(stage: Stage) -> None:
    done = stage.call("run", "k", "--", "no-such-command")

    assert (done.returncode, done.stderr) == (127, "holdfast: no-such-command: command not found\n")


def test_a_line_for_a_shell_is_told_how_to_get_one(stage: Stage) -> None:
    assert "sh -c" in stage.call("run", "k", "--", "echo a && echo b").stderr


@pytest.mark.parametrize("command", ["run", "elect"])
def test_an_option_of_cmd_without_dashes_before_cmd_is_told_of_them(stage: Stage, command: str) -> None:
    done = stage.call(command, "k", "ls", "-l")

    assert done.returncode == exit_codes.BAD_INPUT
    assert "write -- before CMD" in done.stderr
    assert "write -- before CMD" not in stage.call(command, "--nonsense", "k", "--", "ls").stderr


def test_a_command_that_is_not_executable_gives_126(stage: Stage) -> None:
    (stage.folder / "text").write_text("hello")

    done = stage.call("run", "k", "--", "./text")

    assert (done.returncode, done.stderr) == (126, "holdfast: ./text: permission denied\n")


def test_the_command_finds_name_token_and_owner_in_its_environment(stage: Stage) -> None:
    code = "import json, os; print(json.dumps({k: v for k, v in os.environ.items() if k.startswith('HOLDFAST_')}))"
    stage.env["HOLDFAST_SLOT"] = "of an outer run"

    env = json.loads(stage.call("run", "a/b", *python(code)).stdout)

    assert env.pop("HOLDFAST_URL") == stage.url
    assert env.pop("HOLDFAST_NAME") == "a/b"
    assert int(env.pop("HOLDFAST_TOKEN")) > 0
    assert env.pop("HOLDFAST_OWNER")
    assert env == {}


def test_a_later_run_has_a_higher_token(stage: Stage) -> None:
    code = "import os; print(os.environ['HOLDFAST_TOKEN'])"

    tokens = [int(stage.call("run", "k", *python(code)).stdout) for _ in range(2)]

    assert tokens[0] < tokens[1]


def test_the_lock_is_free_after_the_command(stage: Stage) -> None:
    assert stage.call("run", "k", "--", "true").returncode == 0
    with stage.client() as rival:
        assert rival.list() == []


def test_a_wait_that_is_over_gives_1_and_says_who_holds_the_lock(stage: Stage) -> None:
    with stage.client() as rival, rival.lock("k"):
        done = stage.call("run", "--wait", "50ms", "k", "--", "echo", "never")

        assert (done.returncode, done.stdout) == (exit_codes.CONFLICT, "")
        assert "held by rival@" in done.stderr.splitlines()[-1]
        assert rival.inspect("k").waiters == ()


def test_the_conflict_exit_code_can_be_chosen(stage: Stage) -> None:
    with stage.client() as rival, rival.lock("k"):
        done = stage.call("run", "k", "--wait", "0", "--conflict-exit-code", "99", "--quiet", "--", "true")

    assert (done.returncode, done.stderr) == (99, "")


def test_shared_runs_hold_together_and_keep_a_writer_out(stage: Stage) -> None:
    with stage.client() as rival, rival.rwlock("k").read():
        assert stage.call("run", "--wait", "0", "--shared", "k", "--", "true").returncode == 0
        assert stage.call("run", "--wait", "0", "k", "--", "true").returncode == exit_codes.CONFLICT


def test_a_limit_lets_so_many_in_and_names_the_slot(stage: Stage) -> None:
    print_slot = python("import os; print(os.environ['HOLDFAST_SLOT'])")
    with stage.client() as rival, rival.semaphore("gpu", limit=2) as first:
        assert {first.slot, int(stage.call("run", "--limit", "2", "gpu", *print_slot).stdout)} == {0, 1}
        with rival.semaphore("gpu", limit=2):
            done = stage.call("run", "--limit", "2", "--wait", "0", "gpu", *print_slot)

    assert done.returncode == exit_codes.CONFLICT


def test_a_subtree_covers_what_lies_under_it(stage: Stage) -> None:
    with stage.client() as rival, rival.lock("db/users"):
        assert stage.call("run", "--wait", "0", "--subtree", "db", "--", "true").returncode == exit_codes.CONFLICT
        assert stage.call("run", "--wait", "0", "db", "--", "true").returncode == 0


def test_a_wait_in_a_pipe_is_one_line_on_stderr_with_holder_and_place(stage: Stage) -> None:
    with stage.client() as rival:
        with rival.lock("k", note="the nightly job"):
            waiting = stage.start("run", "k", "--", "echo", "mine")
            wait_for_waiters(rival, "k", 1)
            assert waiting.stderr is not None
            line = waiting.stderr.readline()
        out, err = waiting.communicate()

    assert line.startswith("holdfast: waiting for 'k': place 1 in line, held by rival@")
    assert line.endswith(": the nightly job\n")
    assert (out, err, waiting.returncode) == ("mine\n", "", 0)


def test_json_tells_the_story_on_stderr_and_leaves_stdout_to_the_command(stage: Stage) -> None:
    with stage.client() as rival:
        with rival.lock("k"):
            waiting = stage.start("run", "--json", "k", "--", "echo", "mine")
            wait_for_waiters(rival, "k", 1)
            assert waiting.stderr is not None
            first = json.loads(waiting.stderr.readline())
        out, err = waiting.communicate()
    story = [first, *map(json.loads, err.splitlines())]

    assert out == "mine\n"
    assert (first["position"], first["blocker"]["app"]) == (1, "rival")
    assert [entry["event"] for entry in story if entry["event"] != "waiting"] == ["granted", "ended"]
    assert story[-1]["exit_code"] == 0


def test_others_see_the_name_of_the_command_and_the_note(stage: Stage) -> None:
    running = stage.start(
        "run", "k", "--note", "for the books", *python("open('up','w').write('1\\n'); input()"), stdin=-1
    )
    wait_for_file(stage.folder / "up")
    with stage.client() as rival:
        (holder,) = rival.inspect("k").holders
        default_namespace_only = rival.list()
    running.communicate("go\n")

    assert (holder.pid, holder.note) == (running.pid, "for the books")
    assert holder.app == sys.executable.rpartition("/")[2]
    assert [info.name for info in default_namespace_only] == ["k"]


def test_two_namespaces_never_meet(stage: Stage) -> None:
    with stage.client(namespace="other") as rival, rival.lock("k"):
        assert stage.call("run", "--wait", "0", "k", "--", "true").returncode == 0
        done = stage.call("run", "--wait", "0", "--namespace", "other", "k", "--", "true")

    assert done.returncode == exit_codes.CONFLICT


@pytest.mark.parametrize(
    "arguments",
    [
        ("a//b", "--", "true"),
        ("--ttl", "0.01", "k", "--", "true"),
        ("--ttl", "soon", "k", "--", "true"),
        ("--limit", "0", "k", "--", "true"),
        ("--limit", "2", "--shared", "k", "--", "true"),
        ("--grace", "9", "k", "--", "true"),
        ("--namespace", "a b", "k", "--", "true"),
        ("--url", "sqlit:///x.db", "k", "--", "true"),
        ("--url", "nonsense", "k", "--", "true"),
        ("k",),
    ],
)
def test_bad_input_gives_2_and_no_traceback(stage: Stage, arguments: tuple[str, ...]) -> None:
    done = stage.call("run", *arguments)

    assert (done.returncode, done.stdout) == (exit_codes.BAD_INPUT, "")
    assert "Traceback" not in done.stderr
    if done.stderr.startswith("holdfast: "):
        assert done.stderr.count("\n") == 1


def test_an_engine_that_cannot_be_used_gives_69_in_one_line(stage: Stage) -> None:
    done = stage.call("run", "--url", f"sqlite:///{stage.folder}/no/such/folder/locks.db", "k", "--", "true")

    assert done.returncode == exit_codes.UNAVAILABLE
    assert done.stderr.startswith("holdfast: sqlite:///")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotAcquired("k", 1.0), 42),
        (InvalidRequest("name", "", "rule"), 2),
        (Unsupported("e", "w", "i"), 2),
        (EngineUnavailable("e", "p", "unknown"), 69),
        (LockLost("k", 1, "r"), 75),
        (Deadlock("k", []), 79),
        (HoldfastError("else"), 70),
    ],
)
def test_every_error_has_the_exit_code_that_is_documented(error: HoldfastError, code: int) -> None:
    assert exit_codes.for_error(error, conflict=42) == code
