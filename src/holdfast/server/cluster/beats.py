"""What the leader writes into etcd with every renewal of its lease, and by which followers see that it is gone.

The lease alone tells them late: etcd begins it anew with every election of its own leader, also if the server that
has it has been gone for long. The beat is a key that changes with every renewal. If it has not changed for a whole
lease on a follower's clock, the leader's own deadline, which counts from before the beat was sent, has passed.
"""

from __future__ import annotations

import json
from typing import Any

from holdfast.engines.etcd import steps
from holdfast.engines.etcd.wire import Full, LeaseGone
from holdfast.runtime import clock
from holdfast.server.cluster.keys import Keys
from holdfast.server.cluster.wire import Etcd


class Beats:
    """Writes the beats of this server while it leads, and counts the time since those of another one."""

    def __init__(self, etcd: Etcd, keys: Keys) -> None:
        self.etcd, self.keys = etcd, keys
        self.revision = 0
        """Of the last beat of this server."""
        self._seen, self._since = 0, 0.0
        """The revision of the beat that was read last, and when it was read first."""

    async def write(self, term: int, lease: int, ttl: float, until: float) -> int:
        """The leader of `term` renews its lease; the term of etcd's own leader. LeaseGone if another server leads.

        Whatever of this is applied late changes the beat once more, and followers begin to count anew.
        """
        mine, told = steps.created_at(self.keys.leader, term), json.dumps({"term": term, "ttl": ttl}).encode()
        try:
            answer = await self.etcd.decide([mine], [steps.put(self.keys.beat, told, lease)], until=until)
        except Full:
            # Then etcd takes removals only. Where there is no beat, the end of the lease decides.
            answer = await self.etcd.decide([mine], [steps.delete(self.keys.beat)], until=until)
        if not answer.message.succeeded:
            raise LeaseGone
        self.revision = answer.revision
        return answer.term

    def overdue(self, leader: Any | None, beat: Any | None) -> bool:
        """Take the keys as they are now; whether this leader's own deadline must have passed."""
        if leader is None or beat is None:
            self._seen = 0
            return False
        now = clock.now()
        if beat.mod_revision != self._seen:
            self._seen, self._since = beat.mod_revision, now
        told = json.loads(beat.value)
        return bool(told["term"] == leader.create_revision) and now >= self._since + float(told["ttl"])

    async def end_term(self, leader: Any, beat: Any | None) -> bool:
        """Remove the leader's key, if the leader has not written another beat meanwhile; whether that was done."""
        unchanged = [] if beat is None else [steps.unchanged(self.keys.beat, beat.mod_revision)]
        answer = await self.etcd.decide(
            [steps.created_at(self.keys.leader, leader.create_revision), *unchanged],
            [steps.delete(self.keys.leader), steps.delete(self.keys.beat)],
        )
        return bool(answer.message.succeeded)
