"""Giving a lock back."""

from __future__ import annotations

from math import inf

from holdfast.core.table.commands import Done
from holdfast.errors import LockLost, NotHeld
from holdfast.locks.client import Client
from holdfast.locks.grant import GrantView
from holdfast.locks.hold import Hold
from holdfast.model import Claim, Gone


async def release(client: Client, hold: Hold, by: float = inf, grant: GrantView | None = None) -> None:
    """Give a hold back; its last entry gives back the lock. LockLost if it was lost before.

    The claim id is kept until the engine has confirmed: a release that failed may be repeated,
    and the keeper goes on by itself. One `grant` is one entry: it is released once, unless that failed.
    """
    client.io.check_caller()
    entries = hold.entries
    try:
        last = hold.let_go(grant)
        if hold.reason is not None:
            raise LockLost(hold.claim.name, hold.token, hold.reason)
        if not last:
            if grant is not None:
                grant._call_no_more()
            return
        claim, until = hold.claim, client.until()
        if by < until:
            until = by
        if claim.id in client.doubtful:
            reply = await give_back(client, claim, until)
        else:
            reply = await client.verbs.release(claim, until)
    except NotHeld:
        raise
    except BaseException as error:
        if grant is not None:
            if grant._released and not hold.released:
                # Its entry is given back, and was not the last: a second time would be somebody else's.
                grant._call_no_more()
                raise
            grant._released = False
        if isinstance(error, LockLost):
            raise
        if entries > 1 and not hold.released:
            raise  # others hold it by entries of their own; had they let go meanwhile, ours would be the last
        # It may be free already, and will be once the keeper gets through: not valid from here on.
        hold.withdrawn, hold.released = True, False
        hold.session.drop(hold)
        if isinstance(error, Exception | GeneratorExit):
            client.start_keeper().withdraw(hold.claim, unanswered=False)
        else:
            # The caller was told to stop, and stops when it is free: to say so again is safe, whatever was done.
            await client.io.shielded(client.withdraw(hold.claim, unanswered=False))
        raise
    hold.session.forget(hold.claim.id)
    if isinstance(reply, Gone) and not hold.withdrawn:
        hold.released = False
        hold.lose(reply.reason)
        hold.released = True
        if grant is not None:
            grant._released = False
        raise LockLost(hold.claim.name, hold.token, reply.reason)


async def give_back(client: Client, claim: Claim, until: float) -> Done | Gone:
    """Release a claim at the engine. An `enter` of it that may still be on its way has to find that it is over."""
    reply = await client.verbs.release(claim, until)
    await client.verbs.leave(claim, True, until)
    client.doubtful.discard(claim.id)
    return reply


async def release_quietly(client: Client, hold: Hold) -> None:
    """Give back what is not to be used after all; whether it was lost meanwhile does not matter."""
    try:
        await release(client, hold)
    except (LockLost, NotHeld):
        return
