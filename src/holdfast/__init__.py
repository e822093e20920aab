"""Holdfast: a distributed lock manager. `holdfast.connect()` blocks; `holdfast.aio` is the same for asyncio."""

import logging
import sys

if sys.version_info < (3, 11):  # noqa: UP036 - where it is not installed, but on the path
    # Every Python since 2.7 can read this file.
    raise ImportError("Holdfast needs Python 3.11 or newer; this is %s" % sys.version.split()[0])  # noqa: UP031

from holdfast.api.blocking import (
    AllLocks,
    Barrier,
    Cell,
    Client,
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
from holdfast.errors import (
    Conflict,
    Deadlock,
    EngineUnavailable,
    HoldfastError,
    InvalidRequest,
    LockLost,
    NotAcquired,
    NotHeld,
    RecordedFailure,
    StaleToken,
    Unsupported,
    WeakerGuarantee,
)
from holdfast.locks.owner import owner
from holdfast.model import Epoch, Guarantees, Leader, Link, LockEvent, LockInfo, Party, Place

# Losses and failed heartbeats are logged to `holdfast`; where they go is the application's choice.
logging.getLogger("holdfast").addHandler(logging.NullHandler())

__version__ = "0.1.0"

__all__ = [
    "AllLocks",
    "Barrier",
    "Cell",
    "Client",
    "Conflict",
    "Deadlock",
    "Election",
    "EngineUnavailable",
    "Epoch",
    "Grant",
    "Grants",
    "Guarantees",
    "HoldfastError",
    "InvalidRequest",
    "Latch",
    "Leader",
    "Link",
    "Lock",
    "LockEvent",
    "LockInfo",
    "LockLost",
    "Log",
    "NotAcquired",
    "NotHeld",
    "Once",
    "Partition",
    "Party",
    "Place",
    "RWLock",
    "RecordedFailure",
    "StaleToken",
    "Stream",
    "Unsupported",
    "WeakerGuarantee",
    "connect",
    "owner",
]
