"""How long a latch is kept, by a clock that jumps."""

from __future__ import annotations

import holdfast
from holdfast.testing import Rehearsal


def test_an_open_latch_stays_open_for_as_long_as_it_is_waited_for(rehearsal: Rehearsal) -> None:
    """Waiting is a use, also if nobody has to wait any more."""
    with holdfast.connect() as locks:
        locks.latch("ready", count=1, keep=60.0).count_down()

        for _ in range(4):
            rehearsal.advance(40.0)
            locks.latch("ready", count=1, keep=60.0).wait(wait=0.0)
