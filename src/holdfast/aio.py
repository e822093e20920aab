"""Holdfast for asyncio: the same names and shapes as `holdfast`, with `await`."""

from holdfast.api.asyncio import (
    AllLocks,
    Barrier,
    Cell,
    Client,
    Connecting,
    Election,
    Grant,
    Grants,
    Latch,
    Lock,
    Log,
    Once,
    Partition,
    RWLock,
    Stream,
    connect,
)

__all__ = [
    "AllLocks",
    "Barrier",
    "Cell",
    "Client",
    "Connecting",
    "Election",
    "Grant",
    "Grants",
    "Latch",
    "Lock",
    "Log",
    "Once",
    "Partition",
    "RWLock",
    "Stream",
    "connect",
]
