"""For tests of your own critical sections: lose the lock on purpose, and see what your code does.

With pytest, the fixture `rehearsal` is there as soon as Holdfast is installed. Without it, use
`Rehearsal` as a context manager.
"""

from holdfast.testing.assertions import assert_fenced
from holdfast.testing.clock import Clock
from holdfast.testing.rehearsal import Rehearsal

__all__ = ["Clock", "Rehearsal", "assert_fenced"]
