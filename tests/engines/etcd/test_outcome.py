"""A verb says "not done" only if it has changed nothing: every request of every verb is lost once, in every way."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, Literal

import pytest

import holdfast
from holdfast import EngineUnavailable, NotAcquired, aio
from holdfast.core.table.commands import Done
from holdfast.engines.etcd.messages import message
from holdfast.engines.etcd.verbs import EtcdVerbs
from holdfast.engines.etcd.wire import Answer, Full, Request, serialize
from holdfast.errors import EngineFailure
from holdfast.model import Claim, Granted, Place
from holdfast.runtime.blocking import run
from holdfast.verify.proxy import Proxy
from holdfast.verify.servers.etcd import EtcdServer
from tests.engines.etcd.conftest import Connect
from tests.engines.etcd.peer import V3Lock
from tests.engines.etcd.test_recipe import claim_of
from tests.servers.process import wait_until

Loss = Literal["unsent", "unanswered", "full", "full but applied"]
LOSSES: tuple[Loss, ...] = ("unsent", "unanswered", "full", "full but applied")


class LosingPort:
    """A client's port that loses the request of one number, and passes all others on."""

    def __init__(self, verbs: Any, number: int, loss: Loss) -> None:
        self.port, self.number, self.loss = verbs.io.port, number, loss
        self.sent = 0

    def call(self, request: Request, until: float) -> Answer:
        self.sent += 1
        if self.sent != self.number:
            passed: Answer = self.port.call(request, until)
            return passed
        if self.loss in ("unanswered", "full but applied"):
            self.port.call(request, until)
        if self.loss in ("full", "full but applied"):
            raise Full("etcd", "no space", repeated=False)
        raise EngineFailure("etcd", "lost", "unknown" if self.loss == "unanswered" else "not done")


@dataclass
class Scene:
    """Two clients, and the name that this try is about."""

    locks: Any
    rival: Any
    verbs: EtcdVerbs
    name: str
    claim: Claim

    @property
    def until(self) -> float:
        return float(self.verbs.io.now()) + 5.0

    def permit(self, limit: int = 3, waits: bool = True) -> Claim:
        return replace(self.claim, kind=f"{self.locks._core.namespace}.semaphore", limit=limit, waits=waits)

    def rival_holds(self, limit: int = 0) -> Claim:
        """The other client takes the lock, or a permit of so many."""
        claim = own_claim(self.rival, self.name)
        if limit:
            claim = replace(claim, kind=f"{self.rival._core.namespace}.semaphore", limit=limit)
        assert isinstance(run(self.rival._core.verbs.enter(claim, self.until)), Granted)
        return claim


def own_claim(locks: Any, name: str) -> Claim:
    """A claim of an owner who has no other."""
    claim = claim_of(locks, name)
    return replace(claim, owner=claim.id)


Verb = Coroutine[Any, Any, Any]


def enter_free(scene: Scene) -> Verb:
    return scene.verbs.enter(scene.claim, scene.until)


def enter_held(scene: Scene) -> Verb:
    scene.rival_holds()
    return scene.verbs.enter(scene.claim, scene.until)


def enter_busy(scene: Scene) -> Verb:
    """Its owner holds something else, so it looks for a deadlock."""
    other = replace(scene.claim, id=f"{scene.claim.id}0", name=f"{scene.name}-other")
    assert isinstance(run(scene.verbs.enter(other, scene.until)), Granted)
    return enter_held(scene)


def permit_free(scene: Scene) -> Verb:
    return scene.verbs.enter(scene.permit(), scene.until)


def permit_taken(scene: Scene) -> Verb:
    """The permit that it tries first is taken, another one is free."""
    scene.rival_holds(limit=3)
    return scene.verbs.enter(scene.permit(), scene.until)


def permit_taken_now(scene: Scene) -> Verb:
    scene.rival_holds(limit=3)
    return scene.verbs.enter(scene.permit(waits=False), scene.until)


def permit_none(scene: Scene) -> Verb:
    for _ in range(3):
        scene.rival_holds(limit=3)
    return scene.verbs.enter(scene.permit(), scene.until)


def permit_of_another_limit(scene: Scene) -> Verb:
    scene.rival_holds(limit=2)
    return scene.verbs.enter(scene.permit(), scene.until)


def look_granted(scene: Scene) -> Verb:
    held = scene.rival_holds()
    assert isinstance(run(scene.verbs.enter(scene.claim, scene.until)), Place)
    assert run(scene.rival._core.verbs.release(held, scene.until)) == Done()
    return scene.verbs.look(scene.claim, scene.until)


def release(scene: Scene) -> Verb:
    assert isinstance(run(scene.verbs.enter(scene.claim, scene.until)), Granted)
    return scene.verbs.release(scene.claim, scene.until)


def leave(scene: Scene) -> Verb:
    scene.rival_holds()
    assert isinstance(run(scene.verbs.enter(scene.claim, scene.until)), Place)
    return scene.verbs.leave(scene.claim, True, scene.until)


def hand_over(scene: Scene) -> Verb:
    assert isinstance(run(scene.verbs.enter(scene.claim, scene.until)), Granted)
    return scene.verbs.hand_over(scene.claim, "secret", scene.until)


def adopt(scene: Scene) -> Verb:
    held = scene.rival_holds()
    assert run(scene.rival._core.verbs.hand_over(held, "secret", scene.until)) == Done()
    return scene.verbs.adopt(scene.claim, held.id, "secret", scene.until)


def cell_set(scene: Scene) -> Verb:
    return scene.verbs.cell_set(f"{scene.locks._core.namespace}.cell", scene.name, b"1", 0, None, scene.until)


def cell_set_anyway(scene: Scene) -> Verb:
    return scene.verbs.cell_set(f"{scene.locks._core.namespace}.cell", scene.name, b"1", None, None, scene.until)


def cell_kept(scene: Scene) -> Verb:
    return scene.verbs.cell_set(f"{scene.locks._core.namespace}.cell", scene.name, b"1", 0, 60.0, scene.until)


def break_lock(scene: Scene) -> Verb:
    scene.rival_holds()
    return scene.verbs.break_lock(f"{scene.locks._core.namespace}.lock", scene.name, True, scene.until)


SCENARIOS: tuple[Callable[[Scene], Verb], ...] = (
    enter_free, enter_held, enter_busy, permit_free, permit_taken, permit_taken_now, permit_none,
    permit_of_another_limit, look_granted, release, leave, hand_over, adopt, cell_set, cell_set_anyway, cell_kept,
    break_lock,
)  # fmt: skip


def written(server: EtcdServer, namespace: str) -> set[tuple[bytes, int]]:
    """Every key of a namespace, with the revision of its last write."""
    peer = V3Lock(server)
    read = peer.channel.unary_unary("/etcdserverpb.KV/Range", serialize, message("RangeResponse").FromString)
    root = f"/holdfast/1/{namespace}/".encode()
    found = read(message("RangeRequest")(key=root, range_end=root[:-1] + b"0"), timeout=5.0).kvs
    peer.close()
    return {(kv.key, kv.mod_revision) for kv in found}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_verb_that_says_not_done_has_changed_nothing(
    server: EtcdServer, connect: Connect, namespace: str, scenario: Callable[[Scene], Verb], loss: Loss
) -> None:
    locks, rival = connect(ttl=60.0), connect(ttl=60.0)
    rival.lock("warm-up").acquire().release()
    verbs: Any = locks._core.verbs
    outcomes: list[str] = []
    for number in itertools.count(1):
        scene = Scene(locks, rival, verbs, f"k{number}", own_claim(locks, f"k{number}"))
        work = scenario(scene)
        before = written(server, namespace)
        port = verbs.io.port
        losing = verbs.io.port = LosingPort(verbs, number, loss)
        try:
            run(work)
        except EngineUnavailable as error:
            outcomes.append(error.outcome)
            if error.outcome == "not done":
                assert written(server, namespace) == before
        finally:
            verbs.io.port = port
        if losing.sent < number:
            break
        assert number < 20
    # The first request of each verb is the one that changes something, or is sent before anything is changed.
    assert loss != "unsent" or outcomes[0] == "not done"


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("scenario", SCENARIOS[:8], ids=lambda scenario: scenario.__name__)
def test_a_claim_is_gone_after_an_enter_that_failed(
    server: EtcdServer, connect: Connect, namespace: str, scenario: Callable[[Scene], Verb], loss: Loss
) -> None:
    """What a caller does after the error: nothing if it was not done, else a withdrawal."""
    locks, rival = connect(ttl=60.0), connect(ttl=60.0)
    rival.lock("warm-up").acquire().release()
    verbs: Any = locks._core.verbs
    for number in itertools.count(1):
        scene = Scene(locks, rival, verbs, f"k{number}", own_claim(locks, f"k{number}"))
        work = scenario(scene)
        port = verbs.io.port
        losing = verbs.io.port = LosingPort(verbs, number, loss)
        try:
            run(work)
        except EngineUnavailable as error:
            verbs.io.port = port
            counted = scenario.__name__.startswith("permit")
            if error.outcome == "unknown":
                assert run(verbs.leave(scene.permit() if counted else scene.claim, True, scene.until)) == Done()
            info = locks.inspect(scene.name, kind="semaphore" if counted else "lock")
            assert scene.claim.id not in [party.claim for party in (*info.holders, *info.waiters)]
            assert verbs.ledger.get(scene.claim.id) is None
        finally:
            verbs.io.port = port
        if losing.sent < number:
            break


def test_a_semaphore_has_no_ghost_after_a_silence_between_the_calls_of_its_enter(
    connect: Connect, proxy: Proxy
) -> None:
    """Through the requests of many tasks, of which some are never sent."""
    holder = connect(ttl=30.0)
    held = holder.semaphore("gpu", limit=20).acquire()

    async def tasks(namespace: str) -> list[str]:
        async with aio.connect(f"etcd://127.0.0.1:{proxy.port}", ttl=30.0, namespace=namespace) as locks:
            await (await locks.lock("warm-up").acquire()).release()

            async def one() -> str:
                try:
                    await (await locks.semaphore("gpu", limit=20).acquire(wait=0.5)).release()
                except EngineUnavailable as error:
                    return error.outcome
                except NotAcquired:
                    return "not sent in time"
                return "granted"

            proxy.replies.delay = 0.1
            work = [asyncio.create_task(one()) for _ in range(8)]
            await asyncio.sleep(0.15)  # the first calls are answered, the second ones under way
            proxy.requests.set("stall")
            proxy.replies.set("stall")
            found = await asyncio.gather(*work)
            proxy.replies.delay = 0.0
            proxy.heal()
            wait = asyncio.get_running_loop().run_in_executor
            await wait(None, wait_until, lambda: not holder.inspect("gpu", kind="semaphore").waiters, 20.0, "no ghost")
            return found

    outcomes = asyncio.run(tasks(holder._core.namespace))
    assert "unknown" in outcomes
    assert len(holder.inspect("gpu", kind="semaphore").holders) == 1
    held.release()


def test_a_full_etcd_grants_nothing_and_releases_what_is_held(namespace: str) -> None:
    with EtcdServer("--quota-backend-bytes", str(16 * 2**20)) as server:
        locks = holdfast.connect(server.url, namespace=namespace, ttl=60.0)
        held = locks.lock("held").acquire()
        permit = locks.semaphore("gpu", limit=2).acquire()
        version = locks.cell("config").set(b"1")
        _fill(server)
        before = written(server, namespace)
        for work in (
            lambda: locks.lock("k").acquire(wait=1.0),
            lambda: locks.rwlock("r").read().acquire(wait=1.0),
            lambda: locks.semaphore("gpu", limit=2).acquire(wait=1.0),
            lambda: locks.cell("config").set(b"2", version=version),
        ):
            with pytest.raises(EngineUnavailable) as refused:
                work()
            assert (refused.value.outcome, "no space" in str(refused.value)) == ("not done", True)
        assert written(server, namespace) == before
        held.release()
        permit.release()

        assert [key for key, _ in written(server, namespace) if b"/l/" in key] == []
        locks.close()


def _fill(server: EtcdServer) -> None:
    """Write until etcd has no space left."""
    for number in itertools.count():
        body = {"key": b64encode(b"fill%d" % (number % 3)).decode(), "value": b64encode(os.urandom(700_000)).decode()}
        asked = urllib.request.Request(f"http://{server.endpoint}/v3/kv/put", json.dumps(body).encode())
        try:
            urllib.request.urlopen(asked, timeout=5.0).close()
        except urllib.error.HTTPError as error:
            with error:
                if b"space exceeded" not in error.read():
                    raise
            return
