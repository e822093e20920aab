"""The error for an engine that came back with an older state."""

from __future__ import annotations

from holdfast.errors import HoldfastError
from holdfast.locks.client import Client


def lost_data(client: Client, what: str) -> HoldfastError:
    """The error to raise when a number is lower than one that was seen before."""
    return HoldfastError(f"{client} lost data and came back with an older state: {what}; begin again")
