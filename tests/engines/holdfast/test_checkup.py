"""`holdfast doctor` on a lock server: what it really is, and what that does to a lock."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

import holdfast
from holdfast import EngineUnavailable
from holdfast.cli.doctor import doctor
from holdfast.core import urls
from holdfast.engines.checkup import Finding
from holdfast.engines.holdfast.engine import HoldfastEngine
from tests.servers.lock_server import LockServer


def found(url: str) -> dict[str, Finding]:
    engine = HoldfastEngine(urls.parse(url), "holdfast")
    return {finding.check: finding for finding in engine.check_up()}


def test_a_durable_server_is_good_but_for_being_alone(server: LockServer) -> None:
    levels = {check: finding.level for check, finding in found(server.url).items()}

    assert levels.pop("replication") == "warning"
    assert set(levels.values()) == {"good"}


def test_a_server_that_keeps_nothing_on_disk_is_a_danger() -> None:
    with LockServer() as server:
        finding = found(server.url)["store"]

    assert (finding.level, "--store sqlite" in finding.mend) == ("danger", True)


def test_what_is_in_use_is_told(server: LockServer) -> None:
    with holdfast.connect(server.url) as locks, locks.lock("k"):
        assert "1 claims" in found(server.url)["in use"].found


def test_several_addresses_of_a_server_that_is_not_replicated_are_a_danger(server: LockServer) -> None:
    url = f"holdfast://127.0.0.1:{server.port},127.0.0.1:1"

    assert found(url)["replication"].level == "danger"


def test_a_server_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(EngineUnavailable):
        found("holdfast://127.0.0.1:1")


def test_the_command_tells_it_as_json(server: LockServer) -> None:
    told = CliRunner().invoke(doctor, [server.url, "--json"])

    assert "store" in [finding["check"] for finding in json.loads(told.output)["findings"]]
