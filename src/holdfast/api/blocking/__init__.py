"""The blocking API."""

from holdfast.api.blocking.barrier import Barrier
from holdfast.api.blocking.cell import Cell
from holdfast.api.blocking.client import Client, connect
from holdfast.api.blocking.election import Election
from holdfast.api.blocking.grant import Grant, Grants
from holdfast.api.blocking.latch import Latch
from holdfast.api.blocking.lock import AllLocks, Lock, RWLock
from holdfast.api.blocking.log import Log
from holdfast.api.blocking.once import Once
from holdfast.api.blocking.partition import Partition
from holdfast.api.blocking.stream import Stream

__all__ = [
    "AllLocks",
    "Barrier",
    "Cell",
    "Client",
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
