"""A Redis that comes back with an older state: from its last snapshot, or as a replica that was behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import islice
from typing import Any

import pytest
import redis as redis_py

import holdfast
from holdfast import HoldfastError, LockLost, StaleToken, aio
from holdfast.engines.redis import ghosts
from holdfast.engines.redis.ledger import Ledger
from holdfast.fence import RedisFence
from holdfast.verify.proxy import Proxy
from holdfast.verify.servers.redis import RedisServer
from tests.conformance import stage
from tests.faults.children import PATIENCE, eventually

START = "holdfast:1:{holdfast}:"


class World:
    """A server whose snapshot comes back, and clients that stay."""

    def __init__(self, server: RedisServer, stack: ExitStack) -> None:
        self.server, self._stack = server, stack
        self.operator = stack.enter_context(redis_py.Redis(port=server.port))
        self.threads = stack.enter_context(ThreadPoolExecutor(8))

    def client(self, ttl: float = 6.0, url: str = "") -> holdfast.Client:
        return self._stack.enter_context(holdfast.connect(url or self.server.url, ttl=ttl))

    def proxy(self) -> Proxy:
        return self._stack.enter_context(Proxy("127.0.0.1", self.server.port))

    def queued(self, client: holdfast.Client, take: Callable[[], holdfast.Grant], name: str = "k") -> Any:
        """Somebody who waits, as a future; returns when the place in the queue is known."""
        waiting = len(client.inspect(name).waiters)
        future = self.threads.submit(take)
        eventually(lambda: len(client.inspect(name).waiters) > waiting, "it did not get into the queue")
        return future

    def _quiet(self) -> bool:
        """Whether no script has run for a while: what is under way when the server dies fails by itself."""
        calls = [self._calls()]
        until = time.monotonic() + 0.2
        while time.monotonic() < until:
            calls.append(self._calls())
            time.sleep(0.02)
        return len(set(calls)) == 1

    def _calls(self) -> int:
        stats: dict[str, dict[str, int]] = self.operator.info("commandstats")
        return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("eval", "evalsha"))

    def snapshot(self) -> None:
        self.operator.save()

    def come_back(self) -> None:
        eventually(self._quiet, "a request is always under way")
        self.server.kill()
        self.server.start()


@pytest.fixture
def world(server: RedisServer) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(server, stack)


def claims(info: holdfast.LockInfo) -> set[str]:
    return {party.claim for party in (*info.holders, *info.waiters)}


def test_a_grant_that_the_older_state_has_in_its_queue_is_lost(world: World) -> None:
    sender, holder, adopter = world.client(), world.client(), world.client()
    first = sender.lock("k").acquire()
    ticket = first.hand_over()
    waiting = world.queued(sender, holder.lock("k").acquire)
    world.snapshot()
    first.release()
    grant = waiting.result(PATIENCE)
    world.come_back()
    adopted = adopter.adopt(ticket)

    eventually(lambda: grant.lost.is_set(), "the loss was not reported")
    assert not grant.valid
    assert adopted.valid
    eventually(lambda: claims(adopter.inspect("k")) == {adopted._hold.claim.id}, "its place was kept")
    adopted.release()


def test_a_grant_that_the_older_state_has_in_its_queue_is_not_released_as_if_it_were_held(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No heartbeat looks first.
    monkeypatch.setattr(holdfast.locks.keeper.Keeper, "beat_soon", lambda _: None)
    first_client, holder = world.client(60.0), world.client(60.0)
    first = first_client.lock("k").acquire()
    waiting = world.queued(first_client, holder.lock("k").acquire)
    world.snapshot()
    first.release()
    grant = waiting.result(PATIENCE)
    world.come_back()
    with pytest.raises(LockLost):
        grant.release()

    assert grant._hold.claim.id not in claims(first_client.inspect("k"))


def test_a_claim_that_was_granted_anew_is_not_taken_for_the_grant_before(world: World) -> None:
    """Another client may have held the lock in between: the token says that it was granted anew."""
    proxy = world.proxy()
    holder = world.client(url=f"redis://127.0.0.1:{proxy.port}/0")
    others = world.client()
    first = others.semaphore("s", limit=1).acquire()
    waiting = world.threads.submit(holder.semaphore("s", limit=1).acquire)
    eventually(lambda: world.operator.zcard(f"{START}line:semaphore:s") == 1, "it did not get into the queue")
    world.snapshot()
    first.release()
    grant = waiting.result(PATIENCE)
    proxy.go_down()
    world.come_back()
    # Withdrawn by hand: what its client does by itself after a while.
    for claim in world.operator.hkeys(f"{START}lock:semaphore:s"):
        if claim:
            world.operator.hdel(f"{START}lock:semaphore:s", claim)
    assert others.semaphore("s", limit=1).try_acquire() is None
    assert grant._hold.claim.id.encode() in world.operator.hkeys(f"{START}lock:semaphore:s")
    proxy.heal()

    eventually(lambda: grant.lost.is_set(), "the loss was not reported")


@pytest.mark.parametrize("what", ["lock", "max_hold", "read", "semaphore"])
def test_a_claim_that_was_granted_anew_is_not_released_as_the_grant_before(
    world: World, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    # No heartbeat looks first.
    monkeypatch.setattr(holdfast.locks.keeper.Keeper, "beat_soon", lambda _: None)

    def take(client: holdfast.Client) -> holdfast.Grant:
        if what == "semaphore":
            return client.semaphore("k", limit=1).acquire()
        if what == "read" and client is holder:
            return client.rwlock("k").read().acquire()
        return client.lock("k", max_hold=600.0 if what == "max_hold" else None).acquire()

    first_client, holder, third = world.client(60.0), world.client(60.0), world.client(60.0)
    first = take(first_client)
    waiting = world.threads.submit(take, holder)
    kind = "semaphore" if what == "semaphore" else "lock"
    eventually(lambda: world.operator.zcard(f"{START}line:{kind}:k") == 1, "it did not get into the queue")
    world.snapshot()
    first.release()
    grant = waiting.result(PATIENCE)
    world.come_back()
    # What it holds in the older state goes to the next in the queue.
    first_client.close()
    assert world.operator.hexists(f"{START}lock:{kind}:k", grant._hold.claim.id)
    with pytest.raises(LockLost, match="older state"):
        grant.release()

    assert third.inspect("k", kind=kind).holders == ()


async def test_tasks_do_not_release_claims_that_were_granted_anew_together(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holdfast.locks.keeper.Keeper, "beat_soon", lambda _: None)
    names = ["a", "b", "c"]
    first_client = world.client(60.0)
    first = [first_client.lock(name).acquire() for name in names]
    async with aio.connect(world.server.url, ttl=60.0) as holder:
        waiting = [asyncio.ensure_future(holder.lock(name).acquire()) for name in names]
        await stage.eventually(lambda: all(world.operator.zcard(f"{START}line:lock:{name}") == 1 for name in names))
        world.snapshot()
        for each in first:
            each.release()
        grants = await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE)
        await asyncio.to_thread(world.come_back)
        first_client.close()
        released = await asyncio.gather(*(grant.release() for grant in grants), return_exceptions=True)

        assert [type(each) for each in released] == [LockLost] * len(names)


def test_a_permit_that_the_older_state_gives_again_is_lost_and_fenced_out(world: World) -> None:
    """Redis does not know of it any more, and nothing else does: its holder hears of it with the reconnect."""
    holder, others = world.client(60.0), world.client(60.0)
    first = others.semaphore("s", limit=2).acquire()
    world.snapshot()
    grant = holder.semaphore("s", limit=2).acquire()
    world.come_back()
    again = others.semaphore("s", limit=2).acquire(wait=PATIENCE)
    fence = RedisFence(world.operator)

    assert (first.slot, grant.slot, again.slot) == (0, 1, 1)
    assert again.token > grant.token
    fence.check(again)
    with pytest.raises(StaleToken):
        fence.check(grant)
    eventually(lambda: grant.lost.is_set(), "the loss was not reported")
    assert first.valid
    assert again.valid
    first.release()
    again.release()


def test_a_watch_says_that_the_events_it_saw_were_lost(world: World) -> None:
    watcher, others = world.client(60.0), world.client(60.0)
    with watcher.watch("job") as events:
        following = iter(events)
        heard = world.threads.submit(lambda: list(islice(following, 2)))
        eventually(lambda: world.operator.zcard(f"{START}watches") == 1, "it does not watch")
        world.snapshot()
        others.lock("job").acquire().release()
        assert [event.type for event in heard.result(PATIENCE)] == ["granted", "released"]
        more = world.threads.submit(next, following)
        world.come_back()
        # As many as were seen before: by their numbers alone these are the same.
        others.lock("job").acquire().release()

        with pytest.raises(HoldfastError, match="lost data"):
            more.result(PATIENCE)


def test_a_watch_whose_list_of_watches_was_evicted_says_so(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdfast.locks.watching, "SAFETY_NET", 0.1)
    watcher = world.client(60.0)
    with watcher.watch("job") as events:
        heard = world.threads.submit(next, iter(events))
        eventually(lambda: world.operator.zcard(f"{START}watches") == 1, "it does not watch")
        world.operator.delete(f"{START}watches")
        with pytest.raises(HoldfastError, match="missed"):
            heard.result(PATIENCE)


def test_a_waiter_whose_queue_was_evicted_is_granted_all_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holdfast.locks.acquire, "FIRST_POLL", 0.1)
    monkeypatch.setattr(holdfast.locks.acquire, "LAST_POLL", 0.1)
    holder, other = world.client(60.0), world.client(60.0)
    grant = holder.lock("k").acquire()
    # One that ends by itself goes no shortcut.
    waiting = world.queued(holder, other.lock("k", max_hold=600.0).acquire)
    world.operator.delete(f"{START}line:lock:k")
    grant.release()

    theirs = waiting.result(PATIENCE)
    assert theirs.token > grant.token
    theirs.release()


def test_a_waiter_whose_semaphore_was_evicted_and_has_another_limit_now_is_told_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holdfast.locks.acquire, "FIRST_POLL", 0.1)
    monkeypatch.setattr(holdfast.locks.acquire, "LAST_POLL", 0.1)
    holder, other = world.client(60.0), world.client(60.0)
    grant, theirs = holder.semaphore("s", limit=1).acquire(), holder.semaphore("t", limit=3).acquire()
    waiting = world.threads.submit(other.semaphore("s", limit=1).acquire)
    eventually(lambda: world.operator.zcard(f"{START}line:semaphore:s") == 1, "it did not get into the queue")
    # As if it had been evicted, and taken with another limit since; in one step, so that no poll comes in between.
    with world.operator.pipeline(transaction=True) as together:
        together.delete(f"{START}line:semaphore:s", f"{START}wait:semaphore:s")
        together.rename(f"{START}lock:semaphore:t", f"{START}lock:semaphore:s")
        together.execute()

    with pytest.raises(holdfast.InvalidRequest, match="in use with limit 3"):
        waiting.result(PATIENCE)
    for lost in (grant, theirs):
        with pytest.raises(LockLost):
            lost.release()


def test_a_cell_that_went_back_is_not_shown_as_its_next_value(world: World) -> None:
    watcher, others = world.client(60.0), world.client(60.0)
    others.cell("config").set("old")
    world.snapshot()
    others.cell("config").set("new")
    with watcher.cell("config").watch() as values:
        following = iter(values)
        assert next(following)[0] == "new"
        more = world.threads.submit(next, following)
        eventually(lambda: world.operator.zcard(f"{START}watches") == 1, "it does not watch")
        world.come_back()

        with pytest.raises(HoldfastError, match="lost data"):
            more.result(PATIENCE)


@pytest.mark.parametrize("later", [[], ["other"], ["other", "more"]], ids=["shorter", "as long", "longer"])
def test_whoever_follows_a_log_hears_that_it_lost_events(world: World, later: list[str]) -> None:
    follower, others = world.client(60.0), world.client(60.0)
    others.log("orders").append(["first"])
    world.snapshot()
    others.log("orders").append(["second"])
    with follower.log("orders").follow() as events:
        following = iter(events)
        assert [event for _, event in islice(following, 2)] == ["first", "second"]
        more = world.threads.submit(next, following)
        eventually(lambda: world.operator.zcard(f"{START}watches") == 1, "it does not watch")
        world.come_back()
        if later:
            others.log("orders").append(later)

        with pytest.raises(HoldfastError, match="lost data"):
            more.result(PATIENCE)


def test_whoever_waits_at_a_latch_hears_that_its_count_was_lost(world: World) -> None:
    waiter, others = world.client(60.0), world.client(60.0)
    others.latch("ready", count=3).count_down()
    world.snapshot()
    others.latch("ready", count=3).count_down()
    waiting = world.threads.submit(lambda: waiter.latch("ready", count=3).wait(wait=60.0))
    eventually(lambda: world.operator.zcard(f"{START}watches") == 1, "it does not watch")
    world.come_back()

    with pytest.raises(HoldfastError, match="lost data"):
        waiting.result(PATIENCE)


def test_whoever_waits_at_a_barrier_hears_that_its_generations_were_lost(world: World) -> None:
    waiter, first, second = world.client(60.0), world.client(60.0), world.client(60.0)

    def pass_by() -> int:
        passing = world.threads.submit(first.barrier("phase", 2).wait, wait=60.0)
        return max(second.barrier("phase", 2).wait(wait=60.0), passing.result(PATIENCE))

    assert pass_by() == 1
    world.snapshot()
    assert pass_by() == 2
    waiting = world.threads.submit(waiter.barrier("phase", 2).wait, wait=60.0)
    eventually(lambda: world.operator.zcard(f"{START}watches") == 1, "it does not watch")
    world.come_back()

    with pytest.raises(HoldfastError, match="lost data"):
        waiting.result(PATIENCE)


def test_an_observer_hears_that_the_last_leader_was_lost(world: World) -> None:
    observer, first, second = world.client(60.0), world.client(60.0), world.client(60.0)
    former = first.election("leader", value="first").campaign()
    world.snapshot()
    former.release()
    later = second.election("leader", value="second").campaign()
    with observer.election("leader").observe() as leaders:
        following = iter(leaders)
        seen = next(following)
        assert seen is not None
        assert seen.value == "second"
        more = world.threads.submit(next, following)
        eventually(lambda: world.operator.zcard(f"{START}watches") == 1, "it does not watch")
        world.come_back()

        with pytest.raises(HoldfastError, match="lost data"):
            more.result(PATIENCE)
    eventually(later.lost.is_set, "the loss was not reported")


def test_the_token_of_an_epoch_never_goes_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ghosts, "LAID_AFTER", 0.1)
    locks, guest = world.client(60.0), world.client(60.0)
    member = locks.partition("group", member="a")
    member.join()
    alone = member.epoch
    assert alone is not None
    world.snapshot()
    visitor = guest.partition("group", member="b")
    visitor.join()
    eventually(lambda: member.epoch is not None and member.epoch.members == ("a", "b"), "the guest is not seen")
    together = member.token("key") if member.owns("key") else visitor.token("key")
    world.come_back()

    # The older state knows of no guest.
    eventually(lambda: member.epoch is not None and member.epoch.members == ("a",), "the guest is still seen")
    assert member.token("key") > together > alone.token


def test_what_is_held_is_known_with_its_token() -> None:
    ledger = Ledger()
    ledger.holds("s-1", "lock:k", 7)
    ledger.waits("s-2", "lock:k")

    assert sorted(ledger.confirmed()) == [("s-1", "lock:k", "7"), ("s-2", "lock:k", "")]
