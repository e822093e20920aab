"""Several locks at once: all or none, in one order whoever asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from holdfast.core.names import check_name
from holdfast.errors import EngineFailure, HoldfastError, InvalidRequest, NotAcquired
from holdfast.locks.acquire import acquire, answer_by, try_acquire
from holdfast.locks.client import GRACE, Client
from holdfast.locks.grant import GrantView
from holdfast.locks.hold import Entry, Hold
from holdfast.locks.keeper import log
from holdfast.locks.release import give_up, release
from holdfast.locks.spec import Spec

G = TypeVar("G")


def in_order(names: Sequence[str]) -> list[str]:
    """The names without doubles, in the order in which everybody takes them."""
    if not names:
        raise InvalidRequest("names", names, "lock_all needs at least one name")
    return sorted({check_name(name) for name in names}, key=str.encode)


async def acquire_all(client: Client, specs: Sequence[Spec], wait: float | None, taken: list[Entry]) -> None:
    """Take every lock, or none: one deadline for all of them."""
    until = None if wait is None else client.io.now() + wait
    try:
        for spec in specs:
            left = None if until is None else max(0.0, until - client.io.now())
            await acquire(client, spec, left, taken)
    except BaseException as error:
        given_back = await client.io.shielded(let_go(client, taken, answer_by(until)))
        if not given_back and isinstance(error, NotAcquired | EngineFailure):
            raise still_there(client) from error
        raise


async def try_acquire_all(client: Client, specs: Sequence[Spec], taken: list[Entry]) -> bool:
    """Take every lock if all of them are free now; whether they were."""
    by = client.io.now() + GRACE
    try:
        for spec in specs:
            if await try_acquire(client, spec, taken) is None:
                if not await let_go(client, taken):
                    raise still_there(client)
                return False
    except BaseException as error:
        given_back = await client.io.shielded(let_go(client, taken, by))
        if not given_back and isinstance(error, EngineFailure):
            raise still_there(client) from error
        raise
    return True


def hand_out(client: Client, taken: Sequence[Entry], grants: G) -> G:
    """The caller has all of these from here on."""
    for entry in taken:
        client.unsettled.hand_out(entry)
    return grants


def tie_together(client: Client, holds: Sequence[Hold]) -> list[Callable[[], None]]:
    """Lose all of them when one is lost; returns what unties them, for some may be held on by an entry before."""

    def lose_others(first: Hold) -> None:
        for other in holds:
            if other is not first and not other.released:
                reason = f"{first.claim.name!r}, which was taken together with it, was lost"
                client.start_keeper().lose(other.session, other.claim.id, reason)

    return [hold.when_lost(partial(lose_others, hold)) for hold in holds]


def still_there(client: Client) -> EngineFailure:
    """The error for what was taken and could not be given back yet."""
    return EngineFailure(str(client), "a claim could not be withdrawn yet", "unknown")


async def let_go(client: Client, taken: list[Entry], by: float | None = None) -> bool:
    """Give back what was taken, last first, whatever happens to one of them; whether nothing of it is left.

    All of it together takes no longer than `by`, by default a second. The keeper goes on with what is late.
    """
    if by is None:
        by = client.io.now() + GRACE
    given_back = True
    raised: HoldfastError | None = None
    while taken:
        entry = taken.pop()
        try:
            await give_up(client, entry, by)
        except EngineFailure as error:
            given_back = False
            log.debug("%s: %r was not given back at once: %s", client, entry.claim.name, error)
        except HoldfastError as error:
            raised = raised or error
    try:
        if raised is not None:
            raise raised
    finally:
        del raised  # its traceback has this frame
    return given_back


async def release_all(client: Client, grants: Sequence[GrantView]) -> None:
    """Release all of them, last first; what went wrong with one is raised after the rest are released."""
    await client.io.shielded(_release_each(client, grants))


async def _release_each(client: Client, grants: Sequence[GrantView]) -> None:
    first: BaseException | None = None
    for grant in reversed(grants):
        if grant._entry.released or grant._hold.released:
            continue  # somebody released this one by itself
        try:
            await release(client, grant._entry)
        except BaseException as error:  # noqa: BLE001 - the others have to be released whatever it is
            first = first or error
    if first is not None:
        raise first
