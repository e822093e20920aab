"""The asyncio API: the same shapes as the blocking one, with `await`."""

from holdfast.api.asyncio.barrier import Barrier
from holdfast.api.asyncio.cell import Cell
from holdfast.api.asyncio.client import Client, Connecting, connect
from holdfast.api.asyncio.election import Election
from holdfast.api.asyncio.grant import Grant, Grants
from holdfast.api.asyncio.latch import Latch
from holdfast.api.asyncio.lock import AllLocks, Lock, RWLock
from holdfast.api.asyncio.log import Log
from holdfast.api.asyncio.once import Once
from holdfast.api.asyncio.partition import Partition
from holdfast.api.asyncio.stream import Stream

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
