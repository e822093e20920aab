"""What a user of the server has to be allowed."""

from __future__ import annotations

import pytest
import redis as redis_py

from holdfast import EngineUnavailable
from holdfast.verify.servers.redis import RedisServer
from tests.conformance.apis import Api
from tests.conformance.stage import PATIENCE, Stage
from tests.engines.redis.conftest import SUBJECT


async def acquired(server: RedisServer, api: Api, channels: list[str]) -> None:
    """Take a lock as a user who may do all but hear and say what is published on other channels."""
    with redis_py.Redis(port=server.port) as operator:
        operator.acl_setuser("app", enabled=True, passwords="+pw", keys="*", commands=["+@all"], channels=channels)
    stage = Stage(SUBJECT, api, f"redis://app:pw@127.0.0.1:{server.port}/0")
    try:
        await (await (await stage.client()).lock("k").acquire(wait=PATIENCE)).release()
    finally:
        await stage.end()


async def test_a_user_who_may_not_hear_of_releases_is_told_so_at_once(server: RedisServer, api: Api) -> None:
    """Redis makes users like that unless told otherwise. Their releases would fail half-way and wake nobody."""
    with pytest.raises(EngineUnavailable, match="SUBSCRIBE was refused: NOPERM") as caught:
        await acquired(server, api, [])

    assert caught.value.outcome == "not done"


async def test_the_keys_and_channels_of_holdfast_are_enough(server: RedisServer, api: Api) -> None:
    await acquired(server, api, ["holdfast:1:*"])
