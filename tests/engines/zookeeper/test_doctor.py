"""What doctor finds, on one server and on three."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from holdfast.cli.doctor import doctor
from holdfast.core import urls
from holdfast.engines.checkup import Finding
from holdfast.engines.zookeeper.engine import ZooKeeperEngine
from holdfast.errors import EngineUnavailable
from holdfast.verify.servers import zookeeper as servers
from tests.servers.process import free_port
from tests.servers.zookeeper import Ensemble, ZooKeeperServer


def examine(url: str) -> dict[str, Finding]:
    engine = ZooKeeperEngine(urls.parse(url), "holdfast")
    try:
        return {finding.check: finding for finding in engine.check_up()}
    finally:
        engine.close()


def test_one_server_alone_is_no_ensemble(url: str) -> None:
    found = examine(url)

    assert found["quorum margin"].level == "warning"
    assert "alone" in found["quorum margin"].found
    assert found["four-letter words"].level == "good"
    assert found["version"].level == "good"
    assert found["version"].found.startswith("3.")


def test_session_limits_are_what_a_session_was_given(url: str) -> None:
    found = examine(url)["session limits"]

    assert found.level == "good"
    assert "got 10 s; the shortest is 1.2 s, the longest 60 s" in found.found


def test_clocks_are_compared(url: str) -> None:
    assert examine(url)["clock skew"].level == "good"


def test_a_url_without_a_login_is_a_warning(url: str) -> None:
    assert examine(url)["access"].level == "warning"


def test_three_servers_have_a_margin_of_one(three: Ensemble, chroot: str) -> None:
    found = examine(three.url + chroot)

    assert (found["quorum margin"].level, found["servers"].level) == ("good", "good")
    assert "1 may be lost" in found["quorum margin"].found
    assert "leader" in found["servers"].found


def test_a_url_that_names_one_of_three_is_a_warning(three: Ensemble, chroot: str) -> None:
    found = examine(three.followers[0].url + chroot)["quorum margin"]

    assert found.level == "warning"


def test_a_server_that_is_down_is_named(three: Ensemble, chroot: str) -> None:
    down = three.followers[0]
    down.kill()
    try:
        found = examine(three.url + chroot)
    finally:
        down.start()

    assert found["servers"].level == "warning"
    assert down.address in found["servers"].consequence
    assert found["quorum margin"].level == "danger"


def test_limits_that_do_not_fit_the_ttl_are_told() -> None:
    """And a server that keeps its words to itself is told what it hides."""
    with ZooKeeperServer("maxSessionTimeout=5000", "4lw.commands.whitelist=srvr") as server:
        found = examine(server.url)

    assert found["session limits"].level == "warning"
    assert "got 5 s" in found["session limits"].found
    assert found["session limits"].mend == "maxSessionTimeout=10000"
    assert found["tickTime"].level == "warning"


def test_the_longest_request_that_a_server_reads_is_found_out(url: str) -> None:
    found = examine(url)["jute.maxbuffer"]

    assert found.level == "good"
    assert "1,048,000 bytes and more" in found.found
    with servers.ZooKeeperServer(flags=["-Djute.maxbuffer=200000"]) as server:
        found = examine(server.url)["jute.maxbuffer"]
        largest = int(found.found.split()[2].replace(",", ""))

        assert found.level == "danger"
        assert 197_000 < largest <= 200_000


def test_a_server_that_cannot_be_reached_is_an_error() -> None:
    with pytest.raises(EngineUnavailable):
        examine(f"zookeeper://127.0.0.1:{free_port()}")


def test_the_command_tells_all_of_it(url: str) -> None:
    done = CliRunner().invoke(doctor, [url, "--json"])

    findings = json.loads(done.stdout)["findings"]
    assert {"servers", "quorum margin", "session limits", "access"} <= {finding["check"] for finding in findings}
