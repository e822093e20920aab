"""Giving a lock back."""

from __future__ import annotations

from math import inf

from holdfast.core.table.commands import Done
from holdfast.errors import LockLost, NotHeld
from holdfast.locks.client import Client
from holdfast.locks.hold import Entry
from holdfast.model import Claim, Gone


async def release(client: Client, entry: Entry, by: float = inf) -> None:
    """Give an entry back, as `give_up` does. LockLost if it was lost before, NotHeld if it was released before."""
    problem = await give_up(client, entry, by)
    try:
        if problem is not None:
            raise problem
    finally:
        del problem  # its traceback has this frame


async def give_up(client: Client, entry: Entry, by: float = inf) -> LockLost | NotHeld | None:
    """Give an entry back; the last one of a hold gives back the lock. What was wrong with it, if anything.

    That is a value, because an error of the same kind may be a signal handler's: of any error this call
    knows only that it has not come to its end.

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
        if last is None:
            # A release that was interrupted may have let go of it before the engine was asked.
            unsettled.leave_to(former, entry)
            return NotHeld(hold.claim.name, hold.token)
        if last and hold.reason is None:
            reply = await give_back(client, hold.claim, min(by, client.until()))
        else:
            if last:
                entry.released = False
            else:
                entry.end_hook()
            unsettled.end(entry)
            return None if hold.reason is None else LockLost(hold.claim.name, hold.token, hold.reason)
    except BaseException as error:
        if client.drop(entry):
            await withdraw(client, hold.claim, error)
        unsettled.end(entry)
        raise
    hold.session.forget(hold.claim.id)
    unsettled.end(entry)
    if not isinstance(reply, Gone) or hold.withdrawn:
        return None
    client.stay_at_exit()
    entry.released = hold.released = False
    hold.lose(reply.reason)
    hold.released = True
    return LockLost(hold.claim.name, hold.token, reply.reason)


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
