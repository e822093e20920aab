"""A server that may have few files open says so, and comes through a lack of them."""

from __future__ import annotations

import pytest

from tests.faults.children import eventually
from tests.servers.lock_server import LockServer

TOO_FEW = "fewer open files are allowed than the limit connections needs"
FAILED = '"event": "connections cannot be taken"'
AGAIN = '"event": "connections are taken again"'


class Confined(LockServer):
    """A server that may have so many files open, or that begins with so many."""

    def __init__(self, *limits: str, connections: int = 10_000) -> None:
        super().__init__(config=f"[limits]\nconnections = {connections}\n")
        script = "".join(f"ulimit {limit}; " for limit in limits)
        self.prefix = ["sh", "-c", f'{script} exec "$@"', "sh"]


def test_a_limit_that_cannot_be_reached_is_told_with_both_numbers() -> None:
    with Confined("-n 64") as server:
        (line,) = [line for line in server.log.read_text().splitlines() if TOO_FEW in line]

    assert '"level": "warning"' in line
    assert '"open_files": 64, "connections": 10000' in line


@pytest.mark.parametrize(("limits", "connections"), [(["-n 700"], 200), (["-S -n 64", "-H -n 700"], 200)])
def test_nothing_is_said_if_there_are_enough_or_could_be(limits: list[str], connections: int) -> None:
    with Confined(*limits, connections=connections) as server:
        assert TOO_FEW not in server.log.read_text()


def test_a_limit_that_a_reload_raises_too_far_is_told_too() -> None:
    with Confined("-n 700", connections=200) as server:
        server.configure("[limits]\nconnections = 399\n")
        server.reload()

        assert '"open_files": 700, "connections": 399' in server.log.read_text()


def test_clients_for_whom_there_is_no_file_wait_and_the_log_says_so_once() -> None:
    with Confined("-n 64") as server:
        wires = [server.speak() for _ in range(80)]
        assert wires[0]("PING") == "PONG"
        eventually(lambda: FAILED in server.log.read_text(), "nothing was told")
        assert "Too many open files" in server.log.read_text()
        assert AGAIN not in server.log.read_text()

        for wire in wires[:40]:
            wire.close()

        assert [wire("PING") for wire in wires[40:]] == ["PONG"] * 40
        assert (server.log.read_text().count(FAILED), server.log.read_text().count(AGAIN)) == (1, 1)
