"""What Holdfast writes into nodes: JSON.

The data of a queue's own node is the record of the last removal. By claim, it says how each one ended.
"""

from __future__ import annotations

import json
from typing import Any

_encoder = json.JSONEncoder(ensure_ascii=False)


def packed(data: dict[str, Any]) -> bytes:
    """A node's data."""
    return _encoder.encode(data).encode()


def unpacked(data: bytes) -> dict[str, Any]:
    """The same as it was; nothing if it is not ours."""
    try:
        found = json.loads(data or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def removal(
    claim: str, how: str, owner: str | None = None, token: int | None = None, adopter: str = ""
) -> dict[str, Any]:
    """The record of a claim's removal. A watcher needs the owner only together with the token."""
    record: dict[str, Any] = {"how": how}
    if token is not None:
        record |= {"owner": owner, "token": token}
    if adopter:
        record["adopter"] = adopter
    return {claim: record}
