"""At most one leader, which stands for a value."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import NotAcquired, Unsupported
from tests.conformance.abilities import needs
from tests.conformance.apis import Front
from tests.conformance.stage import Stage, eventually, soon


async def test_nobody_leads_before_somebody_campaigned(locks: Front) -> None:
    assert await locks.election("e", value="a").leader() is None


@pytest.mark.any_connection
async def test_one_leads_and_everybody_sees_its_value(locks: Front, rival: Front) -> None:
    grant = await locks.election("e", value="host:9000").campaign()
    own = await locks.election("e").leader()
    assert (own.name, own.value, own.token) == ("e", "host:9000", grant.token)

    if locks.guarantees.recorded:
        seen = await rival.election("e", value="host:9001").leader()
        assert (seen.name, seen.value, seen.token) == ("e", "host:9000", grant.token)
    else:
        with pytest.raises(Unsupported, match="who leads"):
            await rival.election("e", value="host:9001").leader()
    with pytest.raises(NotAcquired):
        await rival.election("e", value="host:9001").campaign(wait=0.05)
    assert grant.valid


async def test_the_next_candidate_leads_after_a_resignation(stage: Stage, locks: Front, rival: Front) -> None:
    first = locks.election("e", value="a")
    grant = await first.campaign()
    second = await stage.queued(locks, "e", rival.election("e", value="b").campaign(), kind="election")
    await first.resign()
    successor = await soon(second)

    assert successor.token > grant.token
    assert not grant.valid
    leader = await rival.election("e").leader()
    assert (leader.value, leader.token) == ("b", successor.token)


async def test_resigning_without_leading_does_nothing(locks: Front, rival: Front) -> None:
    grant = await rival.election("e", value="a").campaign()
    await locks.election("e", value="b").resign()

    assert grant.valid
    assert (await rival.election("e").leader()).value == "a"


@pytest.mark.any_connection
@needs("events")
async def test_an_observer_sees_every_change(stage: Stage, locks: Front, rival: Front) -> None:
    seen: list[str | None] = []
    stream = stage.another(rival).election("e").observe()

    async def observe() -> None:
        while True:
            leader = await stream.next(within=60.0)
            seen.append(None if leader is None else leader.value)

    stage.begin(observe())
    await eventually(lambda: seen == [None])
    election = locks.election("e", value="a")
    await election.campaign()
    await eventually(lambda: seen == [None, "a"])
    await election.resign()
    await eventually(lambda: seen == [None, "a", None])
    grant = await rival.election("e", value="b").campaign()
    await eventually(lambda: seen == [None, "a", None, "b"])
    assert grant.valid


@pytest.mark.by_turns
@needs("events")
async def test_an_observer_sees_that_a_leader_died(stage: Stage, rival: Front) -> None:
    dying = await stage.client(ttl=0.5)
    grant = await dying.election("e", value="a").campaign()
    watcher = await stage.client(ttl=2.0)
    stream = stage.another(watcher).election("e").observe()
    assert (await stream.next()).value == "a"
    stage.silence(dying)

    assert await stream.next() is None
    assert not grant.valid


async def test_a_leader_that_was_deposed_knows(stage: Stage, locks: Front, rival: Front) -> None:
    deposed: list[int] = []
    election = locks.election("e", value="a", on_lost=lambda grant: deposed.append(grant.token))
    grant = await election.campaign()
    await stage.take_away("e", rival, kind="election")

    await eventually(lambda: deposed == [grant.token])
    assert not grant.valid
    await election.resign()


async def test_candidates_lead_one_after_the_other(stage: Stage, locks: Front, rival: Front) -> None:
    leading = 0

    async def run(client: Front, value: str) -> None:
        nonlocal leading
        election = client.election("e", value=value)
        await election.campaign()
        leading += 1
        assert leading == 1
        assert (await election.leader()).value == value
        leading -= 1
        await election.resign()

    await soon(asyncio.gather(*(run(stage.another((locks, rival)[n % 2]), f"v{n}") for n in range(4))))
