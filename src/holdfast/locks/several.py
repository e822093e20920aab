"""Several locks at once: all or none, in one order whoever asks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from holdfast.core.names import check_name
from holdfast.errors import InvalidRequest, LockLost
from holdfast.locks.acquire import acquire, try_acquire
from holdfast.locks.client import Client
from holdfast.locks.hold import Hold
from holdfast.locks.release import release, release_quietly
from holdfast.locks.spec import Spec


def in_order(names: Sequence[str]) -> list[str]:
    """The names without doubles, in the order in which everybody takes them."""
    if not names:
        raise InvalidRequest("names", names, "lock_all needs at least one name")
    return sorted({check_name(name) for name in names}, key=str.encode)


async def acquire_all(client: Client, specs: Sequence[Spec], wait: float | None, taken: list[Hold]) -> None:
    """Take every lock, or none: one deadline for all of them."""
    until = None if wait is None else client.io.now() + wait
    try:
        for spec in specs:
            left = None if until is None else max(0.0, until - client.io.now())
            await acquire(client, spec, left, taken)
    except BaseException:
        await client.io.shielded(let_go(client, taken))
        raise
    tie_together(client, taken)


async def try_acquire_all(client: Client, specs: Sequence[Spec], taken: list[Hold]) -> bool:
    """Take every lock if all of them are free now; whether they were."""
    try:
        for spec in specs:
            if await try_acquire(client, spec, taken) is None:
                await let_go(client, taken)
                return False
    except BaseException:
        await client.io.shielded(let_go(client, taken))
        raise
    tie_together(client, taken)
    return True


def tie_together(client: Client, holds: Sequence[Hold]) -> None:
    """Lose all of them when one is lost."""

    def lose_others(first: Hold) -> None:
        for other in holds:
            if other is not first and not other.released:
                reason = f"{first.claim.name!r}, which was taken together with it, was lost"
                client.start_keeper().lose(other.session, other.claim.id, reason)

    for hold in holds:
        hold.when_lost(partial(lose_others, hold))


async def let_go(client: Client, taken: list[Hold]) -> None:
    """Give back what was taken, last first; a second call finds nothing."""
    while taken:
        await release_quietly(client, taken.pop())


async def release_all(client: Client, holds: Sequence[Hold]) -> None:
    """Release all of them, last first; LockLost for the first that was lost, after the rest are released."""
    lost: LockLost | None = None
    for hold in reversed(holds):
        try:
            await release(client, hold)
        except LockLost as error:
            lost = lost or error
    if lost is not None:
        raise lost
