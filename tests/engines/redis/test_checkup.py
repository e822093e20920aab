"""`holdfast doctor` on Redis: each setting that endangers a lock is found, with its consequence and what mends it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import redis
from click.testing import CliRunner

from holdfast import EngineUnavailable
from holdfast.cli.doctor import doctor
from holdfast.core import urls
from holdfast.engines.checkup import Finding
from holdfast.engines.redis.engine import RedisEngine
from holdfast.engines.redlock.engine import RedlockEngine
from holdfast.verify.proxy import Proxy
from holdfast.verify.servers.redis import RedisServer
from holdfast.verify.servers.redis_deployments import WatchedRedis


def found(url: str) -> dict[str, Finding]:
    engine = RedisEngine(urls.parse(url), "holdfast")
    return {finding.check: finding for finding in engine.check_up()}


@pytest.fixture
def operator(server: RedisServer) -> Iterator[redis.Redis]:
    with redis.Redis(port=server.port) as client:
        yield client


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_policy_that_may_evict_locks_is_a_danger(server: RedisServer, operator: redis.Redis, policy: str) -> None:
    operator.config_set("maxmemory", "100mb")
    operator.config_set("maxmemory-policy", policy)
    finding = found(server.url)["eviction policy"]

    assert (finding.level, policy in finding.found) == ("danger", True)
    assert "given twice" in finding.consequence
    assert "noeviction" in finding.mend


def test_a_server_that_evicts_nothing_is_good(server: RedisServer) -> None:
    assert found(server.url)["eviction policy"].level == "good"


def test_memory_that_is_nearly_full_is_a_warning(server: RedisServer, operator: redis.Redis) -> None:
    used: dict[str, int] = operator.info("memory")
    operator.config_set("maxmemory", str(used["used_memory"] + 1000))

    assert found(server.url)["eviction policy"].level == "warning"


@pytest.mark.parametrize(
    ("settings", "level", "says"),
    [
        ({}, "warning", "none"),
        ({"save": "60 1"}, "warning", "snapshots"),
        ({"appendonly": "yes", "appendfsync": "everysec"}, "warning", "everysec"),
        ({"appendonly": "yes", "appendfsync": "always"}, "good", "always"),
    ],
)
def test_persistence_is_told(
    server: RedisServer, operator: redis.Redis, settings: dict[str, str], level: str, says: str
) -> None:
    for setting, value in settings.items():
        operator.config_set(setting, value)
    finding = found(server.url)["persistence"]

    assert finding.level == level
    assert says in finding.found
    assert bool(finding.mend) == (level != "good")


def test_replicas_are_told_and_a_replica_is_a_danger() -> None:
    with WatchedRedis() as watched:
        lax = found(watched.url)["replicas"]
        with redis.Redis(port=watched.primary.port) as primary:
            primary.config_set("min-replicas-to-write", "1")
        strict = found(watched.url)["replicas"]
        role = found(watched.replicas[0].url)["role"]

    assert (lax.level, "min-replicas-to-write 1" in lax.mend) == ("warning", True)
    assert strict.level == "good"
    assert role.level == "danger"


def test_version_and_clock_are_told(server: RedisServer) -> None:
    findings = found(server.url)

    assert findings["version"].level == "good"
    assert findings["version"].found.startswith("Redis ")
    assert (findings["clock"].level, "ms" in findings["clock"].found) == ("good", True)


def test_a_proxy_is_seen(server: RedisServer) -> None:
    assert found(server.url)["proxy"].level == "good"
    with Proxy("127.0.0.1", server.port) as proxy:
        assert found(f"redis://127.0.0.1:{proxy.port}/0")["proxy"].level == "warning"


def test_a_service_that_hides_its_settings_is_said_to_do_so(server: RedisServer, operator: redis.Redis) -> None:
    operator.execute_command("ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-config")  # type: ignore[no-untyped-call]
    findings = found(f"redis://app:pw@127.0.0.1:{server.port}/0")

    assert findings["configuration"].level == "warning"
    assert "persistence" not in findings


def test_a_server_that_cannot_be_reached_is_said_to_be_so(server: RedisServer) -> None:
    server.kill()
    with pytest.raises(EngineUnavailable):
        found(server.url)
    server.start()


def test_the_nodes_of_a_redlock_are_looked_at_together(server: RedisServer) -> None:
    with RedisServer() as second:
        url = f"redlock://127.0.0.1:{server.port},127.0.0.1:{second.port},localhost:{server.port},127.0.0.1:1"
        engine = RedlockEngine(urls.parse(url), "holdfast")
        findings = {finding.check: finding for finding in engine.check_up()}

    assert findings["independence"].level == "danger"
    assert findings["number of nodes"].level == "warning"
    assert findings["clocks"].level == "good"
    assert findings["127.0.0.1:1"].level == "warning"
    assert findings[f"127.0.0.1:{second.port} persistence"].level == "warning"


def test_the_command_says_it_and_fails_where_there_is_danger(server: RedisServer, operator: redis.Redis) -> None:
    good = CliRunner().invoke(doctor, [server.url, "--json"])
    operator.config_set("maxmemory", "100mb")
    operator.config_set("maxmemory-policy", "allkeys-lru")
    bad = CliRunner().invoke(doctor, [server.url])

    assert good.exit_code == 0
    assert {"promise", "eviction policy", "persistence"} <= {
        finding["check"] for finding in json.loads(good.output)["findings"]
    }
    assert bad.exit_code == 1
    assert "DANGER" in bad.output
