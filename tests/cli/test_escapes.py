"""No name, note or app of another client reaches a terminal as it is: everything goes out through `screen`."""

from __future__ import annotations

import ast
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.cli import screen
from tests.cli.stage import Stage, wait_for_waiters
from tests.cli.terminals import Terminal
from tests.core.test_text import is_safe

EVIL = "\x1b]0;title\x07\x1b[2J\x9b31m\u202egnp.exe\u2066\u200b\r\nFORGED\x7f"
NAME = "k\u202e\u2066"
COMMANDS = (
    ("ls",), ("show", NAME), ("why", NAME), ("ls", "--kind", "election"), ("show", "--kind", "election", NAME),
    ("run", "--wait", "0.05", NAME, "--", "true"), ("elect", "--wait", "0.05", NAME, "--", "true"),
    ("show", f"{EVIL}"), ("ls", f"--{EVIL}"), (EVIL,), ("guarantees", EVIL),
)  # fmt: skip


@pytest.fixture
def crowd(stage: Stage) -> Iterator[Stage]:
    """Locks in use by clients with names as bad as they can be."""
    with (
        holdfast.connect(stage.url, app=f"app{EVIL}") as holder,
        holdfast.connect(stage.url, app=f"other{EVIL}") as waiter,
    ):
        lock = waiter.lock(NAME, note=f"waits{EVIL}")
        thread = threading.Thread(target=lambda: lock.acquire().release(), name=f"thread{EVIL}")
        with holder.lock(NAME, note=f"note{EVIL}"), holder.election(NAME, f"value{EVIL}").campaign():
            thread.start()
            wait_for_waiters(holder, NAME, 1)
            yield stage
        thread.join()


def lines_of(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n")


def test_text_and_json_are_safe(crowd: Stage) -> None:
    for command in COMMANDS:
        for arguments in (command, (command[0], "--json", *command[1:])):
            done = crowd.call(*arguments)
            shown = lines_of(done.stdout) + lines_of(done.stderr)

            assert any(shown), arguments
            assert [line for line in shown if not is_safe(line) or line.startswith("FORGED")] == [], arguments


def test_json_has_the_names_as_they_are(crowd: Stage) -> None:
    info = crowd.json("show", NAME)

    assert (info["name"], info["holders"][0]["app"], info["waiters"][0]["note"]) == (NAME, f"app{EVIL}", f"waits{EVIL}")


def test_a_terminal_gets_only_sequences_of_our_own(crowd: Stage) -> None:
    for command in (
        ("show", NAME),
        ("show", "--json", NAME),
        ("why", NAME),
        ("run", "--wait", "0.05", NAME, "--", "true"),
    ):
        terminal = Terminal(crowd, *command)
        terminal.end()

        for bad in ("\x1b]", "\x1b[2J\x9b", "\x9b", "\x07", "\x7f", "\u202e", "\u2066", "\u200b", "\nFORGED"):
            assert bad not in terminal.seen, (command, bad)
    asking = Terminal(crowd, "break", NAME)
    seen = asking.expect("[y/N]")
    asking.type("n\n")
    asking.end()

    assert "\u202e" not in seen
    assert "\x9b" not in seen


def test_watch_is_safe(stage: Stage) -> None:
    watching = [stage.start("watch"), stage.start("watch", "--json")]
    with holdfast.connect(stage.url, app=EVIL) as client:
        stop = threading.Event()

        def use() -> None:
            while not stop.wait(0.02):
                client.lock(NAME, note=EVIL).acquire().release()

        user = threading.Thread(target=use)
        user.start()
        try:
            lines = [watch.stdout.readline() for watch in watching if watch.stdout is not None]
        finally:
            stop.set()
            user.join()

    assert all(is_safe(line.removesuffix("\n")) for line in lines)
    assert json.loads(lines[1])["name"] == NAME


WRITERS = {"echo", "secho", "print", "print_json", "write", "writelines"}


def test_nothing_but_screen_writes() -> None:
    folder = Path(screen.__file__).parent
    found = []
    for path in sorted(folder.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            name = called.rpartition(".")[2]
            if name in WRITERS and called != "os.write" and path.name != "screen.py":
                found.append(f"{path.name}: {called}")

    # The one line of a table that has three colours; its text is made safe there.
    assert found == ["demo.py: screen.console().print", "verify.py: report.write"]
