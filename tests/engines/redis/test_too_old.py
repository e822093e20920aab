"""A server that lacks what the scripts need says so in one line, with what is needed."""

from __future__ import annotations

import pytest

import holdfast
from holdfast.engines.redis.checkup import check_version
from holdfast.engines.resp.wire import ReplyError, refused
from holdfast.verify.servers.redis import RedisServer

NEEDED = r"too old: Redis 6\.0 or newer, or Valkey, is needed"


def test_a_server_without_a_command_that_the_scripts_need_is_told_to_be_too_old() -> None:
    with RedisServer("--rename-command", "HSET", "") as server, holdfast.connect(server.url) as locks:
        with pytest.raises(holdfast.EngineUnavailable, match=NEEDED):
            locks.lock("k").acquire(wait=1.0)


def test_what_redis_4_says_to_the_first_write_of_a_script_means_that_nothing_was_done() -> None:
    told = ReplyError(
        "ERR Error running script (call to f_1): @user_script:1: @user_script: 1: Write commands not allowed after non "
        "deterministic commands. Call redis.replicate_commands() at the start of your script"
    )
    problem = refused("redis://h", told, repeated=False)

    assert problem.outcome == "not done"
    assert "Redis 6.0 or newer" in str(problem)
    assert "\n" not in str(problem)


def test_the_doctor_names_the_version_that_is_too_old() -> None:
    assert check_version({"redis_version": "5.0.14"}).level == "danger"
    assert check_version({"redis_version": "6.0.0"}).level == "good"
    assert "6.0" in check_version({"redis_version": "5.0.14"}).consequence
