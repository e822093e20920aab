"""Looking after the token counters."""

from __future__ import annotations

from holdfast.errors import InvalidRequest
from holdfast.locks.client import Client
from holdfast.model import HIGHEST_RAISE


async def raise_tokens(client: Client, above: int) -> None:
    """Make every later token larger than `above`. A counter that is past it already stays as it is."""
    if isinstance(above, bool) or not isinstance(above, int) or not 0 <= above <= HIGHEST_RAISE:
        rule = f"tokens can be raised to {HIGHEST_RAISE} at most, which leaves 2^40 of them"
        raise InvalidRequest("above", above, rule)
    client.check_open()
    await client.verbs.raise_tokens(above, client.until())
