"""How long a confirmed heartbeat proves that the session lives.

The leader ends sessions. It hears of a session by its follower, which tells it with every ping what was asked
since the last one. The leader pings every half tick, and no session is shorter than two ticks. A follower that
confirms a heartbeat and dies before the next ping takes it along: the leader counts from an earlier request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from holdfast.core import deadline
from holdfast.runtime.calls import new_lock

SHARE = 2 / 3
"""How much of the negotiated time a confirmed write is good for, if those before it came in time."""
MOST_SHARE = 11 / 12
"""How much of it a request is good for that the leader knows of for certain."""
PING_SHARE = 1 / 4
"""The longest time between two pings, as a share of the negotiated time: half a tick, of two ticks or more."""


def granted(seconds: float) -> float:
    """The ttl whose deadline, with the usual margin off, comes so many seconds after the request."""
    return (seconds + deadline.MARGIN_FIXED) / (1 - deadline.MARGIN_SHARE)


def proven(negotiated: float) -> float:
    """The ttl whose deadline, with the usual margin off, is two thirds of what was negotiated."""
    return granted(negotiated * SHARE)


class Request(NamedTuple):
    """When a request was sent, and when its answer was there: it reached the server in between."""

    sent: float
    answered: float


def leader_knows(requests: Sequence[Request], ping_every: float) -> float:
    """From when the leader counts at the worst, if the follower dies as soon as it has confirmed the last request.

    The first of these requests reached the leader itself, and no ping tells of it. Of each other one the leader
    hears at the next ping.
    """
    known = last = requests[-1].sent
    for earlier, later in pairwise(requests):
        if later.answered > last - ping_every:
            # The last ping may have come just before `later`. If they are close, it brought word of `earlier`.
            close = earlier is not requests[0] and later.answered - earlier.sent <= ping_every
            known = min(known, max(earlier.sent, last - ping_every) if close else earlier.sent)
    return known


class Grant(NamedTuple):
    """What a server granted a session, and when it was asked."""

    sent: float
    negotiated: float


class Life:
    """The heartbeats of one session that were confirmed over its present connection, and until when they are good."""

    def __init__(self, sent: float, answered: float, negotiated: float, attached_at: float) -> None:
        """The session was asked for at `sent`, and its nodes were made by `answered`."""
        self._attached_at = attached_at
        self._requests = deque([Request(attached_at, attached_at), Request(attached_at, answered)])
        self._proof = (sent, negotiated * SHARE, attached_at)
        self._lock = new_lock()

    def confirm(self, request: Request, negotiated: float, attached_at: float) -> float:
        """A heartbeat is confirmed, in any thread; for how many seconds from its sending it is good."""
        with self._lock:
            if request.sent > self._proof[0]:
                self._proof = (request.sent, self._judge(request, negotiated, attached_at), attached_at)
            return self._proof[1]

    def _judge(self, request: Request, negotiated: float, attached_at: float) -> float:
        if attached_at != self._attached_at:
            self._attached_at, self._requests = attached_at, deque([Request(attached_at, attached_at)])
        sent, requests = request.sent, self._requests
        requests.append(request)
        while len(requests) > 2 and requests[1].answered < sent - negotiated:
            requests.popleft()
        known = leader_knows(requests, negotiated * PING_SHARE)
        return min(negotiated * SHARE, known - sent + negotiated * MOST_SHARE)

    def good_until(self, shorter: Grant | None) -> float:
        """When this client stops to believe in its session, if no other heartbeat is confirmed.

        `shorter`: what a server granted that granted less than those before it.
        """
        sent, good, attached_at = self._proof
        if shorter is None or attached_at >= shorter.sent:
            return sent + good
        return min(sent + good, shorter.sent + shorter.negotiated * SHARE)
