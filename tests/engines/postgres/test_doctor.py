"""`holdfast doctor` on real servers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from holdfast.core.urls import parse
from holdfast.engines.checkup import Finding
from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.verify.servers.postgres import PostgresServer
from tests.engines.postgres.patience import eventually
from tests.servers.pgbouncer import PgBouncerServer


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """One as it comes: that of the other tests waits for no disk, which is what a doctor has to find."""
    with PostgresServer() as server:
        yield server


def findings(url: str) -> dict[str, Finding]:
    engine = PostgresEngine(parse(url), "holdfast")
    try:
        return {finding.check: finding for finding in engine.check_up()}
    finally:
        engine.close()


def test_a_plain_server_is_well(url: str) -> None:
    found = findings(url)

    assert {check for check, finding in found.items() if finding.level == "danger"} == set()
    assert found["pooling proxy"].level == "good"
    assert "on first use" in found["rights"].found
    assert found["clock skew"].level == "good"


def test_a_transaction_pool_is_a_danger_and_a_session_pool_is_not(server: PostgresServer) -> None:
    with PgBouncerServer(server, "transaction") as proxy:
        assert findings(proxy.url)["pooling proxy"].level == "danger"
    with PgBouncerServer(server, "session") as proxy:
        assert findings(proxy.url)["pooling proxy"].level == "good"


@pytest.mark.parametrize(
    ("check", "setting", "value"),
    [
        ("durability", "full_page_writes", "off"),
        ("autovacuum", "autovacuum", "off"),
    ],
)
def test_a_dangerous_setting_is_found(
    database: psycopg.Connection[Any], url: str, check: str, setting: str, value: str
) -> None:
    database.execute(f"ALTER SYSTEM SET {setting} = {value}")
    database.execute("SELECT pg_reload_conf()")
    try:
        eventually(lambda: findings(url)[check].level == "danger")
    finally:
        database.execute(f"ALTER SYSTEM RESET {setting}")
        database.execute("SELECT pg_reload_conf()")
    eventually(lambda: findings(url)[check].level == "good")


def test_a_role_without_rights_is_found(database: psycopg.Connection[Any], server: PostgresServer, schema: str) -> None:
    database.execute(f"CREATE ROLE poor_{schema} LOGIN")
    try:
        found = findings(f"postgresql://poor_{schema}@127.0.0.1:{server.port}/postgres?schema={schema}")
    finally:
        database.execute(f"DROP ROLE poor_{schema}")
    assert found["rights"].level == "danger"
    assert "holdfast postgres ddl" in found["rights"].mend


def test_the_command_prints_it(url: str) -> None:
    command = [sys.executable, "-m", "holdfast.cli.main", "doctor", url, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert {finding["check"] for finding in json.loads(done.stdout)["findings"]} >= {"replication", "dead peers"}
