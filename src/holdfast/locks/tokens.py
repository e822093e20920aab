"""Looking after the token counters."""

from __future__ import annotations

from holdfast.errors import InvalidRequest
from holdfast.locks.client import Client
from holdfast.model import MAX_TOKEN


async def raise_tokens(client: Client, above: int) -> None:
    """Make every later token larger than `above`. A counter that is past it already stays as it is."""
    if isinstance(above, bool) or not isinstance(above, int) or not 0 <= above < MAX_TOKEN:
        raise InvalidRequest("above", above, f"a token is a number from 0 to {MAX_TOKEN - 1}")
    client.check_open()
    await client.verbs.raise_tokens(above, client.until())
