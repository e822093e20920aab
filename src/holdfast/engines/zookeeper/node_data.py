"""What Holdfast writes into nodes: JSON."""

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
