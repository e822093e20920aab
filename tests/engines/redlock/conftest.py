"""Five real servers that know nothing of each other, each behind a proxy."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
import redis

from holdfast import EngineUnavailable
from holdfast.verify.proxy import Proxy
from holdfast.verify.servers.redis import MANY_DATABASES, RedisServer
from tests.conformance.apis import APIS, Api, Front
from tests.conformance.engines import ENGINES
from tests.conformance.stage import PATIENCE, Stage

_numbers = itertools.count(1)
SUBJECT = next(subject for subject in ENGINES if subject.name == "redis")


@dataclass
class Nodes:
    """Five servers, and what is between them and the clients of this test."""

    servers: list[RedisServer]
    proxies: list[Proxy]
    database: int

    @property
    def url(self) -> str:
        """For tests in which every node answers, however busy the machine is."""
        return self.url_with_limit(10.0)

    def url_with_limit(self, seconds: float) -> str:
        """For tests in which some do not."""
        hosts = ",".join(f"127.0.0.1:{proxy.port}" for proxy in self.proxies)
        return f"redlock://{hosts}/{self.database}?node_limit={seconds}"

    def keys(self) -> list[set[str]]:
        """What each node has, but for its counter."""
        found = []
        for server in self.servers:
            with redis.Redis(port=server.port, db=self.database, decode_responses=True) as client:
                start = "holdfast:1:{holdfast}:"
                found.append({key.removeprefix(start) for key in client.scan_iter()} - {"last"})
        return found

    def scripts_run(self, node: int) -> int:
        """How many scripts a node has run so far."""
        with redis.Redis(port=self.servers[node].port) as client:
            found: int = client.info("commandstats")["cmdstat_evalsha"]["calls"]
            return found

    def holders(self, name: str) -> list[str | None]:
        """Whose claim each node has on a lock."""
        found: list[str | None] = []
        for server in self.servers:
            with redis.Redis(port=server.port, db=self.database, decode_responses=True) as client:
                found.append(client.hget(f"holdfast:1:{{holdfast}}:lock:lock:{name}", "claim"))
        return found


@pytest.fixture(scope="session")
def five_servers() -> Iterator[list[RedisServer]]:
    with ExitStack() as stack:
        yield [stack.enter_context(RedisServer(*MANY_DATABASES)) for _ in range(5)]


@pytest.fixture
def nodes(five_servers: list[RedisServer]) -> Iterator[Nodes]:
    with ExitStack() as stack:
        proxies = [stack.enter_context(Proxy("127.0.0.1", server.port)) for server in five_servers]
        yield Nodes(five_servers, proxies, next(_numbers))


@pytest.fixture(params=APIS, ids=lambda api: api.name)
def api(request: pytest.FixtureRequest) -> Api:
    found: Api = request.param
    return found


@pytest.fixture
async def stage(api: Api, nodes: Nodes) -> AsyncIterator[Stage]:
    stage = Stage(SUBJECT, api, nodes.url)
    yield stage
    for proxy in nodes.proxies:
        proxy.heal()
    await stage.end()


@pytest.fixture
async def locks(stage: Stage) -> Front:
    return await connected(stage, "locks")


@pytest.fixture
async def rival(stage: Stage) -> Front:
    return await connected(stage, "rival")


async def connected(stage: Stage, app: str) -> Front:
    """A client that has its session and its connections: a `try_acquire` has a second for all that it does."""
    client = await stage.client(app=app)
    await (await client.lock(f"first of {app}").acquire()).release()
    return client


async def tried(lock: Front) -> Any:
    """What a try comes to: asked again when the machine is too busy for an answer of five servers within a second."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return await lock.try_acquire()
        except EngineUnavailable:
            assert time.monotonic() < until
