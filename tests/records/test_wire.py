"""The lock server answers byte by byte as recorded (`recorded/wire/*.txt`; `transcript.py` says how to read them).

Each file is played twice on a new server, in RESP2 and in RESP3. The requests are sent as they are recorded; recording
anew writes the replies and keeps the requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.records import transcript
from tests.records.record import Record
from tests.servers.lock_server import LockServer

FOLDER = Path(__file__).parent / "recorded" / "wire"
FILES = sorted(path.stem for path in FOLDER.glob("*.txt"))
CONFIGS = {path.stem: path.read_text() for path in sorted(FOLDER.glob("*.toml"))}
"""The configuration of the server that a file is played on, where that is not empty."""
ADMINISTRATOR = [b"ops", b"password of ops"]


@contextmanager
def server_of(name: str) -> Iterator[LockServer]:
    with LockServer(config=CONFIGS.get(name, "")) as server:
        yield server


def played(name: str, text: str) -> str:
    """The file as it goes today."""
    conversations = transcript.read(text)
    has_users = "[users." in CONFIGS.get(name, "")
    came: dict[int, list[list[list[str]]]] = {}
    for version in transcript.VERSIONS:
        number = b"%d" % version
        hello = [] if has_users else [b"HELLO", number]
        login = [b"HELLO", number, *([b"AUTH", *ADMINISTRATOR] if has_users else [])]
        with server_of(name) as server:
            player = transcript.Player(server.port, version, hello, login, server.stop)
            came[version] = [player.play(conversation) for conversation in conversations]
    shown = (
        transcript.written(conversation, {version: all_[index] for version, all_ in came.items()})
        for index, conversation in enumerate(conversations)
    )
    return "\n\n".join(shown) + "\n"


@pytest.mark.parametrize("name", FILES)
def test_the_server_answers_as_recorded(name: str, record: Callable[[str], Record]) -> None:
    kept = record(f"wire/{name}.txt")

    kept.compare(played(name, kept.text()))
