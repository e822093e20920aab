"""Giving a lock back."""

from __future__ import annotations

from math import inf

from holdfast.core.table.commands import Done
from holdfast.errors import LockLost, NotHeld
from holdfast.locks.client import Client
from holdfast.locks.hold import Entry
from holdfast.model import Claim, Gone


async def release(client: Client, entry: Entry, by: float = inf) -> None:
    """Give an entry back; the last one of a hold gives back the lock. LockLost if it was lost before.

    The claim id is kept until the engine has confirmed: a release that failed may be repeated,
    and the keeper goes on by itself. The entry is recorded meanwhile, for the case that this call
    is interrupted before the keeper knows.
    """
    hold = entry.held
    unsettled = client.unsettled
    former = unsettled.begin(entry)
    try:
        client.stay_at_exit()
        last = hold.let_go(entry)
        if hold.reason is not None:
            raise LockLost(hold.claim.name, hold.token, hold.reason)
        if not last:
            entry.end_hook()
            unsettled.end(entry)
            return
        reply = await give_back(client, hold.claim, min(by, client.until()))
    except NotHeld:
        # A release that was interrupted may have said so before the engine was asked.
        unsettled.leave_to(former, entry)
        raise
    except LockLost:
        if hold.released:
            entry.released = False
        else:
            entry.end_hook()
        unsettled.end(entry)
        raise
    except BaseException as error:
        if client.drop(entry):
            await withdraw(client, hold.claim, error)
        unsettled.end(entry)
        raise
    hold.session.forget(hold.claim.id)
    unsettled.end(entry)
    if isinstance(reply, Gone) and not hold.withdrawn:
        client.stay_at_exit()
        entry.released = hold.released = False
        hold.lose(reply.reason)
        hold.released = True
        raise LockLost(hold.claim.name, hold.token, reply.reason)


async def withdraw(client: Client, claim: Claim, error: BaseException) -> None:
    """See to it that a claim goes whose release ended in this error."""
    if isinstance(error, Exception | GeneratorExit):
        client.start_keeper().withdraw(claim, unanswered=False)
    else:
        # The caller was told to stop, and stops when it is free: to say so again is safe, whatever was done.
        await client.io.shielded(client.withdraw(claim, unanswered=False))


async def give_back(client: Client, claim: Claim, until: float) -> Done | Gone:
    """Release a claim at the engine. An `enter` of it that may still be on its way has to find that it is over."""
    doubtful = claim.id in client.doubtful
    reply = await client.verbs.release(claim, until)
    if doubtful:
        await client.verbs.leave(claim, True, until)
        client.doubtful.discard(claim.id)
    return reply


async def release_quietly(client: Client, entry: Entry) -> None:
    """Give back what is not to be used after all; whether it was lost meanwhile does not matter."""
    try:
        await release(client, entry)
    except (LockLost, NotHeld):
        return
