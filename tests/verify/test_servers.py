"""Servers that the verifier starts."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.verify.servers.process import family, find
from holdfast.verify.servers.redis import RedisServer


def test_a_server_that_is_stopped_is_not_ready() -> None:
    server = RedisServer()
    server.start()
    try:
        server.pause()
        assert not server.is_ready()
        server.resume()
        server.wait_ready()
    finally:
        server.close()


PORT_OF_TWO = """
import sys
from holdfast.verify.servers import process
process.PORTS = [int(port) for port in sys.argv[1:]]
print(process.free_port())
"""


def test_the_port_of_a_server_that_does_not_run_now_goes_to_no_other_process() -> None:
    server, other = RedisServer(), RedisServer()
    ports = (server.port, other.port)
    other.close()
    try:
        command = (sys.executable, "-c", PORT_OF_TWO, *map(str, ports))
        # Each of the two is tried first in half of all runs.
        found = {subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(8)}

        assert found == {f"{ports[1]}\n"}
    finally:
        server.close()


class Stubborn(RedisServer):
    """Asked to end in order, it does nothing of the kind."""

    orderly = signal.SIGCONT


def test_a_server_that_does_not_end_in_order_is_ended_the_hard_way() -> None:
    with Stubborn() as server:
        server.stop(within=0.2)

        assert not server.running


def test_a_server_of_the_system_goes_before_one_that_a_package_brings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages, system = tmp_path / "packages", tmp_path / "system"
    for folder in (packages, system):
        folder.mkdir()
        (folder / "lockd").touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(packages / "python"))
    monkeypatch.setenv("PATH", f"{packages}:{system}")

    assert find("lockd") == str(system / "lockd")
    (system / "lockd").unlink()
    assert find("lockd") == str(packages / "lockd")


def test_a_process_that_ends_while_it_is_looked_at_has_no_family(monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(path: Path) -> str:
        # What the system says of a folder in /proc that was there a moment ago.
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH), str(path))

    monkeypatch.setattr(Path, "read_text", ended)

    assert family(os.getpid()) == []
