"""What a load begins with: which snapshot counts, and what of the log is in it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from holdfast.engines.etcd import steps
from holdfast.runtime import clock
from holdfast.server.cluster.keys import Keys
from holdfast.server.cluster.wire import WITHIN, Call
from holdfast.server.codec import TooNew

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Head:
    """The one key that says what the others mean."""

    first_number: int
    """Where tokens began."""
    number: int = 0
    """The last entry of the log that is in the snapshot; its parts are kept under this number."""
    chain: int = 0
    """The checksum of the log up to there."""
    at: float = 0.0
    """The table's time then."""
    parts: int = 0
    sum: int = 0
    """The checksum of all parts."""
    size: int = 0
    """Bytes of all parts."""

    def packed(self) -> bytes:
        return json.dumps({"format": FORMAT} | asdict(self)).encode()


def read_head(value: bytes) -> Head:
    """The head that was written; TooNew if a later Holdfast did."""
    found = json.loads(value)
    if found["format"] > FORMAT:
        raise TooNew(found["format"])
    return Head(**{name: found[name] for name in Head.__slots__ if name in found})


async def write_head(call: Call, keys: Keys, term: int, seen: int, head: Head, also: Sequence[Any] = ()) -> int | None:
    """Write the head in place of the one that was written at revision `seen`, and do what goes with that.

    The revision of the new one; None if the leader of that term leads no more. It is done once: etcd may carry out
    an earlier try late, when what it removes has become what everything rests on, and then finds another head.
    """
    mine = steps.created_at(keys.leader, term)
    request = steps.step(
        [mine, steps.unchanged(keys.head, seen)],
        [steps.put(keys.head, head.packed()), *also],
        [steps.get(keys.head), steps.get(keys.leader)],
    )
    answer = await call(request, clock.now() + WITHIN)
    if answer.message.succeeded:
        return answer.revision
    found, leader = (list(steps.kvs(each)) for each in answer.message.responses)
    leads = bool(leader) and leader[0].create_revision == term
    # Only the leader writes heads: one that is newer than what we saw is that of an earlier try.
    if leads and found and found[0].mod_revision > seen and found[0].value == head.packed():
        return int(found[0].mod_revision)
    return None
