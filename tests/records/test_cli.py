"""The commands of `holdfast` print with --json what is recorded, and exit as recorded (`recorded/cli/*.txt`).

    # One lock.
    $ holdfast show --json free
      = 0
      {
        "kind": "lock",

A line with $ is a command; it is run as it is recorded, and recording anew writes what comes of it. `=` is its exit
code, lines with ! are its standard error. `$~` keeps the keys and types of what it prints, not the values. `<url>` is
the engine that the file's scene has, which is $HOLDFAST_URL too.
"""

from __future__ import annotations

import json
import re
import shlex
import signal
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import stage
from tests.cli.stage import PATIENCE, Stage, eventually
from tests.records.playing import played
from tests.records.record import Record
from tests.records.resp_text import Names
from tests.servers.lock_server import LockServer
from tests.servers.lock_store_in_etcd import lock_store_in_etcd

__all__ = ["stage"]
FILES = sorted(path.stem for path in (Path(__file__).parent / "recorded" / "cli").glob("*.txt"))
TOKEN = re.compile(r"\b1[6-9]\d{14}\b")
SESSION = re.compile(r"\b[0-9a-f]{12}(?=/|-\d|\b)")
BY_KEY = {
    "pid": "<pid>", "since": "<time>", "at": "<time>", "age": "<seconds>", "host": "<host>", "version": "<version>",
    "python": "<version>",
}  # fmt: skip
"""Values that differ between two runs, by their keys."""
OF_A_CLUSTER = dict.fromkeys(
    ("number", "started", "remaining", "db_bytes", "batches", "bytes", "commit_seconds"), "<number>"
)
OF_THIS_MACHINE = {"round trip", "disk space", "file system", "access", "scope"}
"""What `doctor` looks at that is another on each machine, or at each time."""


class Hidden:
    """Placeholders for what differs between two runs of a file."""

    def __init__(self, known: dict[str, str], by_key: dict[str, str]) -> None:
        self.known, self.by_key = known, by_key
        """By a word or another part of a text, and by the key of a value: what stands for it."""
        self.names = Names()

    def value(self, value: Any, key: str = "") -> Any:
        if key in self.by_key and not isinstance(value, dict | list | None):
            return self.by_key[key]
        if isinstance(value, dict):
            if value.get("check") in OF_THIS_MACHINE:
                return {name: each if name == "check" else "<of this machine>" for name, each in value.items()}
            return {name: self.value(each, name) for name, each in value.items()}
        if isinstance(value, list):
            return [self.value(each, key) for each in value]
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, int) and TOKEN.fullmatch(str(value)):
            return self.names.token(value)
        return value

    def text(self, text: str) -> str:
        for part, placeholder in self.known.items():
            text = re.sub(rf"(?<!\w){re.escape(part)}(?!\w)", placeholder, text)
        text = re.sub(r"(within|for) [\d.]+ s\b", r"\1 <n> s", text)
        for session in SESSION.findall(text):
            self.names.name("session", session)
        return self.names.hide(text)


def shape(value: Any) -> Any:
    """Keys, and the types of values. Of a list, the shapes that occur in it."""
    if isinstance(value, dict):
        return {name: shape(each) for name, each in value.items()}
    if isinstance(value, list):
        shapes = [json.dumps(shape(each), sort_keys=True) for each in value]
        return [json.loads(each) for each in sorted(set(shapes))]
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def played_file(text: str, stage: Stage, hidden: Hidden) -> str:
    """The file as it goes today."""
    lines: list[str] = []
    for line in text.splitlines():
        if not line or line.startswith("#"):
            lines.append(line)
        elif line.startswith("$"):
            lines.append(line)
            lines += run(line, stage, hidden)
    return "\n".join(lines) + "\n"


def run(line: str, stage: Stage, hidden: Hidden) -> Iterator[str]:
    """What comes of one command."""
    mark, _, command = line.partition(" ")
    words = [word.replace("<url>", stage.url) for word in shlex.split(command)]
    assert words[0] == "holdfast"
    done = stage.call(*words[1:])
    yield f"  = {done.returncode}"
    yield from (f"  {each}" for each in documents(done.stdout, hidden, mark == "$~"))
    yield from (f"  ! {each}" for each in documents(done.stderr, hidden, mark == "$~"))


def documents(text: str, hidden: Hidden, shape_only: bool) -> Iterator[str]:
    """Each line of the output, JSON laid out on several."""
    for line in text.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            yield hidden.text(line)
            continue
        found = shape(value) if shape_only else hidden.value(value)
        yield from json.dumps(found, indent=2, ensure_ascii=False).splitlines()


# Scenes


@contextmanager
def scene(name: str, stage: Stage) -> Iterator[dict[str, str]]:
    """What is there when the commands of a file are run; the parts of texts that differ between two runs."""
    host = socket.gethostname()
    known = {str(stage.folder): "<folder>", host: "<host>"}
    if name in ("looking", "running"):
        with played(stage.url, "holdfast") as story:
            yield known | story.normal.fixed | {str(pid): f"<pid of {of}>" for pid, of in story.normal.pids.items()}
    elif name == "server":
        with LockServer(store="sqlite:///locks.db?ballast_mib=1") as server:
            stage.url = stage.env["HOLDFAST_URL"] = server.url
            yield known | {str(server.folder): "<server>"}
    elif name == "cluster":
        with lock_store_in_etcd() as (_, server):
            stage.url = stage.env["HOLDFAST_URL"] = server.url
            yield known
    else:
        yield known


@pytest.mark.parametrize("name", FILES)
def test_commands_print_what_is_recorded(name: str, stage: Stage, record: Callable[[str], Record]) -> None:
    kept = record(f"cli/{name}.txt")
    with scene(name, stage) as known:
        kept.compare(
            played_file(kept.text(), stage, Hidden(known, BY_KEY | (OF_A_CLUSTER if name == "cluster" else {})))
        )


def test_a_watch_prints_what_is_recorded(stage: Stage, record: Callable[[str], Record]) -> None:
    with stage.client() as rival:
        rival.lock("ready").acquire().release()  # makes the file
        watching = stage.start("watch", "--json", "orders/")
        eventually(lambda: watches(stage.database), "the watch has begun")
        held = rival.lock("orders/1").acquire()
        stage.call("run", "--wait", "0", "orders/1", "--", "true")
        held.release()
        rival.lock("orders/2", note="the nightly run").acquire().release()
    assert watching.stdout is not None
    lines = [watching.stdout.readline() for _ in range(4)]
    watching.send_signal(signal.SIGINT)
    watching.wait(PATIENCE)

    hidden = Hidden({}, BY_KEY)
    text = "\n".join([*documents("".join(lines), hidden, shape_only=False), f"= {watching.returncode}"]) + "\n"
    record("cli_watch/watch.txt").compare(re.sub(r"/t\d+", "/<owner>", text))


def watches(database: Path) -> bool:
    """Whether the store has a watch."""
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute("SELECT 1 FROM watches").fetchone() is not None
