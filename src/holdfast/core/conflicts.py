"""Which claims exclude each other.

There are no stored intents: a claim conflicts with claims on its own name, with subtree
claims on its ancestors, and, if it covers a subtree itself, with everything under it.
Two shared claims never conflict. Permits are counted instead (see `core.table.permits`).
"""

from __future__ import annotations

from holdfast.model import Claim


def conflict(one: Claim, other: Claim) -> bool:
    """Whether the two cannot be granted together."""
    if one.kind != other.kind or (one.mode == "shared" and other.mode == "shared"):
        return False
    if one.name == other.name:
        return True
    if one.subtree and other.name.startswith(one.name + "/"):
        return True
    return other.subtree and one.name.startswith(other.name + "/")
