"""Faults after a plan."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

from holdfast.verify import history
from holdfast.verify.faults.fault import Scene, Strike
from holdfast.verify.history import Recorder
from holdfast.verify.refusal import NotAllowed
from holdfast.verify.schedule import Appointment

TOO_SHORT = "the run was too short, or nobody was left to hit"


class Storm:
    """Keeps appointments: begins each fault at its time, and undoes it when its length is over."""

    def __init__(self, recorder: Recorder, scene: Scene, tell: Callable[[str], object]) -> None:
        self.recorder, self.scene, self.tell = recorder, scene, tell
        self.struck: Counter[str] = Counter()
        """How often each fault struck."""
        self.not_tested: dict[str, str] = {}
        self._under_way: list[tuple[float, Strike, history.Fault]] = []

    def rage(self, appointments: Sequence[Appointment], seconds: float) -> None:
        """Go through all of it. At the end nothing is left undone."""
        began = time.monotonic()
        waiting = sorted(appointments, key=lambda each: each.at)
        try:
            while waiting or self._under_way or time.monotonic() < began + seconds:
                now = time.monotonic() - began
                self._undo(now)
                due = [each for each in waiting if each.at <= now]
                waiting = [each for each in waiting if each.at > now]
                waiting += [each for each in due if not self._begin(each, now) and self._again(each, now, seconds)]
                time.sleep(0.02)
        finally:
            self._undo(float("inf"))
        for each in appointments:
            if not self.struck[each.fault.name]:
                self.not_tested.setdefault(each.fault.name, TOO_SHORT)

    def _again(self, appointment: Appointment, now: float, seconds: float) -> bool:
        """Whether what found no victim is tried again: while the run lasts, and after it if it has not struck at all.

        Then others are under way, and leave their victims to it.
        """
        unheard = not self.struck[appointment.fault.name]
        return now < seconds or (unheard and (bool(self._under_way) or now < seconds + self.scene.ttl))

    def _begin(self, appointment: Appointment, now: float) -> bool:
        fault = appointment.fault
        try:
            strike = fault.begin(self.scene)
        except NotAllowed as refusal:
            self.not_tested[fault.name] = refusal.reason
            return True
        if strike is None:
            return False
        record = self.recorder.fault(fault.what, strike.victim, fault=fault.name, **strike.details)
        self.scene.taken.update(id(each) for each in strike.taken)
        self.struck[fault.name] += 1
        self.tell(f"{now:.0f} s: {fault.name} {strike.victim}")
        self._under_way.append((now + appointment.length, strike, record))
        return True

    def _undo(self, now: float) -> None:
        for entry in [entry for entry in self._under_way if entry[0] <= now]:
            self._under_way.remove(entry)
            _, strike, record = entry
            strike.undo()
            self.recorder.undo(record)
            self.scene.taken.difference_update(id(each) for each in strike.taken)
