"""Members that share keys."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from holdfast import Epoch, InvalidRequest, NotHeld
from tests.conformance.abilities import needs
from tests.conformance.apis import Front
from tests.conformance.refusals import refused
from tests.conformance.stage import Stage, eventually

KEYS = [f"key-{number}" for number in range(60)]


async def all_see(members: list[Front]) -> None:
    """Wait until every member acts under one epoch that has all of them."""

    def agreed() -> bool:
        epochs = {member.target.epoch for member in members}
        return len(epochs) == 1 and (epoch := epochs.pop()) is not None and len(epoch.members) == len(members)

    await eventually(agreed, within=20.0)


async def joined(client: Front, name: str, **options: Any) -> Front:
    """A member of the group that all tests here use."""
    member: Front = client.partition("workers", name, **options)
    await member.join()
    return member


@needs("shared", "cells")
async def test_a_member_alone_owns_everything(locks: Front) -> None:
    member = await joined(locks, "a")

    assert member.target.members() == ("a",)
    assert list(member.target.mine(KEYS)) == KEYS
    assert member.target.owner_of("key-1") == "a"
    assert member.target.token("key-1") == member.target.epoch.token > 0


@pytest.mark.by_turns
@pytest.mark.any_connection
@needs("shared", "cells")
async def test_every_key_has_one_owner(stage: Stage, locks: Front, rival: Front) -> None:
    members = [await joined(locks, "a"), await joined(rival, "b"), await joined(await stage.client(), "c")]
    await all_see(members)

    shares = [list(member.target.mine(KEYS)) for member in members]
    assert sorted(key for share in shares for key in share) == sorted(KEYS)
    assert all(shares)
    for member in members:
        assert [members[0].target.owner_of(key) for key in KEYS] == [member.target.owner_of(key) for key in KEYS]


@pytest.mark.by_turns
@needs("shared", "cells")
async def test_when_a_member_leaves_only_its_keys_move(stage: Stage, locks: Front, rival: Front) -> None:
    members = [await joined(locks, "a"), await joined(rival, "b"), await joined(await stage.client(), "c")]
    await all_see(members)
    before = {key: members[0].target.owner_of(key) for key in KEYS}
    await members[1].leave()
    await all_see([members[0], members[2]])

    after = {key: members[0].target.owner_of(key) for key in KEYS}
    moved = {key for key in KEYS if before[key] != after[key]}
    assert moved == {key for key in KEYS if before[key] == "b"}
    assert not any(members[1].target.owns(key) for key in KEYS)


@pytest.mark.by_turns
@needs("shared", "cells")
async def test_every_epoch_has_a_higher_token(locks: Front, rival: Front) -> None:
    first = await joined(locks, "a")
    tokens = [first.target.epoch.token]
    for _ in range(2):
        second = await joined(rival, "b")
        await all_see([first, second])
        tokens.append(first.target.epoch.token)
        await second.leave()
        await all_see([first])
        tokens.append(first.target.epoch.token)

    assert tokens == sorted(set(tokens))
    assert len(tokens) == 5


@needs("shared", "cells")
async def test_the_token_of_a_key_is_higher_than_those_of_the_groups_name_before_it(locks: Front, rival: Front) -> None:
    """So that a fence that has seen a lock's token lets a member's pass. Other names may have another counter."""
    held = await rival.lock("workers").acquire()
    await held.release()
    member = await joined(locks, "a")

    assert member.target.token("key-1") > held.target.token


@pytest.mark.by_turns
@needs("shared", "cells")
async def test_a_member_that_died_is_replaced_after_its_ttl(stage: Stage, locks: Front) -> None:
    doomed = await stage.client(ttl=0.5)
    members = [await joined(locks, "a"), await joined(doomed, "b")]
    await all_see(members)
    stage.silence(doomed)

    await all_see(members[:1])
    assert list(members[0].target.mine(KEYS)) == KEYS
    await eventually(lambda: not any(members[1].target.owns(key) for key in KEYS))


@pytest.mark.by_turns
@needs("shared", "cells")
async def test_a_member_whose_claim_was_taken_comes_back(stage: Stage, locks: Front, rival: Front) -> None:
    told: list[Epoch | None] = []
    member = await joined(locks, "a", on_change=told.append)
    before = member.target.epoch
    await stage.take_away("workers", rival, kind="partition", force=True)

    await eventually(lambda: member.target.epoch is not None and member.target.epoch.token > before.token)
    await eventually(lambda: len(told) >= 3)
    assert told[0] == before
    assert None in told
    assert told[-1] == member.target.epoch


@pytest.mark.by_turns
@needs("shared", "cells")
async def test_a_member_whose_session_ended_comes_back(locks: Front, rival: Front) -> None:
    members = [await joined(locks, "a"), await joined(rival, "b")]
    await all_see(members)
    core = locks.target._core
    ended = core.session
    core.start_keeper().end(ended, "a test")
    assert not any(members[0].target.owns(key) for key in KEYS)

    await all_see(members)
    assert core.session is not ended
    shares = [list(member.target.mine(KEYS)) for member in members]
    assert sorted(key for share in shares for key in share) == sorted(KEYS)


@pytest.mark.by_turns
@needs("shared", "cells")
async def test_changes_are_told(locks: Front, rival: Front) -> None:
    told: list[Epoch | None] = []
    first = await joined(locks, "a", on_change=told.append)
    second = await joined(rival, "b")
    await all_see([first, second])
    await second.leave()
    await all_see([first])

    await eventually(lambda: len(told) == 3)
    assert [epoch.members for epoch in told if epoch is not None] == [("a",), ("a", "b"), ("a",)]


@pytest.mark.by_turns
@needs("shared", "cells")
async def test_of_two_with_one_name_one_owns(locks: Front, rival: Front) -> None:
    members = [await joined(locks, "same"), await joined(rival, "same")]
    await eventually(lambda: members[0].target.epoch == members[1].target.epoch)

    owned = [sum(member.target.owns(key) for key in KEYS) for member in members]
    assert sorted(owned) == [0, len(KEYS)]


@needs("shared", "cells")
async def test_groups_do_not_meet(locks: Front, rival: Front) -> None:
    first, second = await joined(locks, "a"), rival.partition("others", "b")
    await second.join()

    assert first.target.members() == ("a",)
    assert second.target.members() == ("b",)


@needs("shared", "cells")
async def test_whoever_has_not_joined_owns_nothing(locks: Front) -> None:
    member = locks.partition("workers")

    assert member.target.epoch is None
    assert member.target.members() == ()
    assert member.target.owner_of("k") is None
    assert list(member.target.mine(KEYS)) == []
    with pytest.raises(NotHeld):
        member.target.token("k")


@pytest.mark.by_turns
@needs("shared", "cells")
async def test_another_members_key_has_no_token_here(locks: Front, rival: Front) -> None:
    members = [await joined(locks, "a"), await joined(rival, "b")]
    await all_see(members)
    key = next(key for key in KEYS if members[0].target.owner_of(key) == "b")

    with pytest.raises(NotHeld, match="'b' owns it"):
        members[0].target.token(key)
    assert members[1].target.token(key) == members[1].target.epoch.token


@needs("shared", "cells")
async def test_a_with_joins_and_leaves(locks: Front, rival: Front) -> None:
    async with locks.partition("workers") as member:
        assert member.target.members() == (member.target.member,)
    assert member.target.members() == ()
    assert (await rival.inspect("workers", kind="partition")).holders == ()


@needs("shared", "cells")
async def test_nothing_is_sent_to_see_who_owns_a_key(stage: Stage, locks: Front) -> None:
    member = await joined(locks, "a")
    verbs = locks.target._core.verbs
    locks.target._core.verbs = None
    try:
        assert member.target.owns("k")
        assert member.target.owner_of("k") == "a"
        assert member.target.members() == ("a",)
        assert member.target.token("k") > 0
    finally:
        locks.target._core.verbs = verbs


@pytest.mark.by_turns
@pytest.mark.any_connection
@needs("shared", "cells")
async def test_in_danger_nobody_owns(stage: Stage, locks: Front) -> None:
    if stage.subject.outage is None:
        member = await joined(locks, "a")
        locks.target._core.session.in_danger = True
        assert not member.target.owns("k")
        return
    client = await stage.client(ttl=3.0)
    member = await joined(client, "a")
    with stage.outage():
        await eventually(lambda: client.target._core.session.in_danger)
        assert not member.target.owns("k")
        assert client.target._core.session.over is None
    await eventually(lambda: bool(member.target.owns("k")), within=20.0)


@needs("shared", "cells")
async def test_a_member_that_cannot_be_is_refused(locks: Front) -> None:
    members: list[Any] = ["", "x" * 129, 7, "a\nb"]
    assert [each for each in members if not refused(partial(locks.partition, "workers", each))] == []


@needs("shared", "cells")
async def test_a_key_is_text(locks: Front) -> None:
    member = await joined(locks, "a")
    for call in (member.target.owns, member.target.owner_of, member.target.token):
        with pytest.raises(InvalidRequest):
            call(7)
