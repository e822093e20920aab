"""What cannot go on ends, and says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.core.table.changes import Change, DropRow
from holdfast.core.table.commands import Sweep
from holdfast.core.table.questions import Question
from holdfast.server.connection import Connection
from holdfast.server.memory_store import MemoryStore
from holdfast.server.process import Process
from holdfast.server.service import STOPPING
from holdfast.server.settings import Settings
from holdfast.server.store import StoreBroken
from tests.server.inside import SECRET, Client, Inside


class BrokenStore(MemoryStore):
    """Keeps nothing."""

    async def keep(self, changes: Sequence[Change], may_block: bool = False) -> None:
        raise StoreBroken("test", "an fsync failed")


async def test_a_store_that_breaks_during_a_stop_is_no_stop_in_order() -> None:
    process = Process(Settings(store="memory://"), Settings)
    process.service.batches.store = BrokenStore()
    process.service.begin_turn()
    process.service.batches.changes.append(DropRow(None))  # type: ignore[arg-type]
    process.stop()

    with pytest.raises(StoreBroken):
        await process._stop()
    process.logins.close()


async def test_the_dead_who_cannot_be_cleared_away_end_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    inside = Inside()
    client = Client(inside)
    run = inside.service.run

    def fail(command: object, *rest: object) -> object:
        if isinstance(command, Sweep):
            raise AssertionError("a mistake")
        return run(command, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(inside.service, "run", fail)
    inside.service.deaths.due = 0.0

    with pytest.raises(AssertionError, match="a mistake"):
        client.send("HF.OPEN", "*", "*", 5000)

    assert [str(error) for error in inside.broken] == ["a mistake"]
    assert inside.service.table.sessions == {}
    inside.close()


async def test_who_waits_for_a_claim_that_was_cleared_away_is_told() -> None:
    inside = Inside()
    first, second = Client(inside), Client(inside)
    for client, session in ((first, "session1"), (second, "session2")):
        client.send("HF.OPEN", session, "x" * 22, 60_000)
        client.send("HF.ACQUIRE", f"{session}-1", "k", "WAIT", 60_000, "BLOCK")
    await inside.settle()
    second.replies()
    service = inside.service
    service.table.put(DropRow(service.table.rows["session2-1"]))

    service.wait_over("session2-1")
    await inside.settle()

    assert second.replies() == [[b"gone", b"its session ran out"]]
    inside.close()


async def test_the_end_of_a_session_looks_for_the_next_in_a_long_line_once_a_step() -> None:
    inside = Inside()
    client, other = Client(inside), Client(inside)
    client.send("HF.OPEN", "session1", "x" * 22, 60_000)
    for number in range(200):
        client.send("HF.ACQUIRE", f"session1-{number}", "k", "OWNER", f"session1/{number}")
    other.send("HF.OPEN", "session2", "x" * 22, 60_000)
    other.send("HF.ACQUIRE", "session2-1", "k")
    deaths, asked = inside.service.deaths, Counter[str]()
    answer = deaths._answer

    def counted(question: Question, now: float) -> Any:
        asked[type(question).__name__] += 1
        return answer(question, now)

    deaths._answer = counted
    client.send("HF.CLOSE", "session1")
    await inside.settle()

    assert inside.service.table.rows["session2-1"].token is not None
    assert asked["NextWaiting"] == 1
    inside.close()


async def test_what_comes_after_quit_in_the_same_packet_is_not_carried_out() -> None:
    inside = Inside()
    client = Client(inside)
    client.connection.data_received(b"PING\r\nQUIT\r\nHF.CELLSET c v\r\nPING\r\n")
    await inside.turn(20)

    assert client.replies() == [b"PONG", b"OK"]
    assert client.line.closed
    assert not inside.service.table.cells
    inside.close()


@pytest.mark.parametrize("taken_in", ["before", "after"])
async def test_who_comes_to_a_server_that_stops_is_sent_away_with_nothing_done(
    taken_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody could say goodbye to it."""
    inside = Inside()
    made = Connection(inside.service, inside.commands)
    inside.service.stop(1000)
    if taken_in == "before":
        monkeypatch.setattr("tests.server.inside.Connection", lambda service, commands: made)
    client = Client(inside)
    client.send("HELLO", 3)
    client.send("HF.CELLSET", "k", "x")
    client.send("HF.OPEN", "session1", SECRET, 60_000)
    await inside.settle()

    assert [str(error).split()[0] for error in client.replies()] == [STOPPING.word] * 3
    assert not inside.service.table.cells
    inside.close()
