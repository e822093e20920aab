"""An operator's release."""

from __future__ import annotations

from holdfast.core.names import check_name
from holdfast.locks.ability import need_record
from holdfast.locks.client import Client
from holdfast.locks.outcome import unknown_from_here


async def break_lock(client: Client, name: str, kind: str, force: bool) -> int:
    """Make every holder of a lock let go; how many there were. Returns when they are gone.

    Each holder's client makes its grant lost, then releases it. One that does not answer is
    removed after its own ttl. With `force` they are removed at once, and only the fence protects.
    """
    check_name(name)
    client.check_open()
    need_record(client, "break_lock")
    kind = client.kind(kind)
    told = await client.verbs.break_lock(kind, name, force, client.until())
    left = set(told.claims)
    io = client.io
    pause = 0.005
    with unknown_from_here():
        while left:
            # Sweeping removes a claim whose time is over even if nobody waits for the lock.
            await client.verbs.sweep(client.until())
            info = await client.verbs.inspect(kind, name, client.until())
            left &= {holder.claim for holder in info.holders}
            if left:
                await io.wait(io.signal(), io.now() + pause)
                pause = min(pause * 1.5, 0.25)
    return len(told.claims)
