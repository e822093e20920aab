"""Elections: the holder of an exclusive claim leads, and stands for a value."""

from __future__ import annotations

from collections.abc import AsyncIterator

from holdfast.core.names import fits
from holdfast.errors import InvalidRequest, Unsupported
from holdfast.locks.ability import CAN, need_events
from holdfast.locks.client import Client
from holdfast.locks.lost_data import lost_data
from holdfast.locks.spec import LONGEST_NOTE
from holdfast.locks.watching import SAFETY_NET, End, Watching
from holdfast.model import Leader


def check_value(value: object) -> str:
    """A candidate's value, which rides with its claim."""
    if not fits(value, LONGEST_NOTE):
        raise InvalidRequest("value", value, f"a candidate's value is text of at most {LONGEST_NOTE} bytes of UTF-8")
    return str(value)


async def leader(client: Client, name: str) -> Leader | None:
    """Who leads now."""
    client.check_open()
    info = await client.verbs.inspect(client.kind("election"), name, client.until())
    if not info.holders:
        return None
    holder = info.holders[0]
    assert holder.token is not None
    if not holder.token:
        raise Unsupported(str(client), "telling who leads in another process", CAN)
    return Leader(name, holder.note, holder.token, holder)


def observe(client: Client, name: str, end: End) -> AsyncIterator[Leader | None]:
    """Who leads, now and after every change; None while nobody does.

    HoldfastError if a leader has a lower token than one that was seen: the engine lost data.
    """
    need_events(client, "observe")
    return _leaders(client, name, end)


async def _leaders(client: Client, name: str, end: End) -> AsyncIterator[Leader | None]:
    async with Watching(client, prefix=name, read_anew=True, end=end) as watching:
        seen: Leader | None = None
        first, highest = True, 0
        while True:
            now = await leader(client, name)
            if now is not None:
                if now.token < highest:
                    raise lost_data(client, f"election {name!r} went back from token {highest} to {now.token}")
                highest = now.token
            if first or (now and now.token) != (seen and seen.token):
                first, seen = False, now
                yield now
            # A leader that dies writes no event until somebody notices: look now and then.
            await watching.next_letters(client.io.now() + min(SAFETY_NET, client.ttl / 2))
