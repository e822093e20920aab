"""A mutex that is not one: the control that the judge of exclusion must catch."""

from __future__ import annotations

from holdfast.verify.workloads.mutex import Mutex


class NoMutex(Mutex):
    """Each process takes a lock of its own, and believes that it is everybody's."""

    name = "no-mutex"
    names = (("lock", "verify/no-mutex/a"),)
    breaks = "exclusion"

    def lock_name(self, name: str) -> str:
        return f"{name}/{self.actor.process}"
