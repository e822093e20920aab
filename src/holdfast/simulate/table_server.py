"""The lock manager: the real lock table on a machine of its own, with a disk that forgets what was not synced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from holdfast.core.table import Dictionary
from holdfast.core.table import apply as apply_command
from holdfast.core.table.changes import Change
from holdfast.core.table.commands import MISSED, Command, Enter, Inspect, Leave, Look, Notice, Open, Renew, Sweep
from holdfast.core.table.machine import Outcome
from holdfast.model import Place
from holdfast.runtime.simulated import Machine
from holdfast.simulate.network import Network

Answer = Callable[[Any], None]


class Sender(Protocol):
    """Who asks: notices for its sessions go back to it."""

    machine: Machine
    deliver: Callable[[Notice], None]


class Disk:
    """Keeps what was synced. What was only written is gone when the power is."""

    def __init__(self, sync: float = 0.002) -> None:
        self.sync = sync
        """How long a sync takes, in seconds."""
        self.kept: list[Any] = []
        self.written: list[Any] = []

    def write(self, things: Sequence[Any]) -> None:
        """Write changes, or whatever else is to be kept, one after the other."""
        self.written += things

    def synced(self, upto: int) -> None:
        """The first so many of what was written are safe."""
        self.kept += self.written[:upto]
        del self.written[:upto]

    def lose_power(self) -> None:
        self.written.clear()


class TableServer:
    """Runs the lock table. With a disk it answers nothing that is not on it; without one it never crashes."""

    repeatable = frozenset({Open, Renew, Sweep, Enter, Look, Leave, Inspect})
    answers_early = False
    """Whether it answers before the disk has it: a control, which has to go wrong."""

    def __init__(self, network: Network, machine: Machine, disk: Disk | None = None) -> None:
        self.network, self.world, self.machine, self.disk = network, network.world, machine, disk
        self.rows = Dictionary()
        self.senders: dict[str, Sender] = {}
        """By session."""
        self.queued: dict[str, float] = {}
        """By claim: when it was given a place in line."""
        self.life = 0
        self._batch: list[tuple[Answer, Outcome]] = []
        self._syncing = False

    @property
    def unsynced(self) -> int:
        """How many changes its disk would forget now."""
        return len(self.disk.written) if self.disk else 0

    def apply(self, command: Command) -> Outcome:
        """One step of the table. A broken manager does something else here."""
        return apply_command(command, self.now(), self.rows.answer, self.rows.put, wall=self.now())

    def now(self) -> float:
        return self.machine.now()

    def handle(self, request: Command, sender: Sender | None, answer: Answer) -> None:
        """Carry a request out; answer when it is safe to. An operator has no session, and hears no notices."""
        if type(request) is Open and sender is not None:
            self.senders[request.session.id] = sender
        outcome = self.apply(request)
        if type(request) is Enter and type(outcome.reply) is Place:
            self.queued.setdefault(request.claim.id, self.world.time)
        if self.disk is None:
            self._let_out(answer, outcome)
            return
        self.disk.write(outcome.changes)
        if self.answers_early:
            self._let_out(answer, outcome)
        else:
            self._batch.append((answer, outcome))
        if not self._syncing:
            self._begin_sync()

    def _let_out(self, answer: Answer, outcome: Outcome) -> None:
        answer(outcome.reply)
        for notice in outcome.notices:
            self._notify(notice)

    def _notify(self, notice: Notice) -> None:
        sender = self.senders.get(notice.session)
        if sender is not None:
            self.network.carry(self.machine, sender.machine, partial(sender.deliver, notice), notice=True)

    # The disk

    def _begin_sync(self) -> None:
        """Sync what was written so far; what comes meanwhile goes into the next one."""
        assert self.disk is not None
        self._syncing = True
        batch, self._batch = self._batch, []
        done = partial(self._end_sync, self.life, len(self.disk.written), batch)
        self.world.at(self.world.time + self.disk.sync, done, self.machine)

    def _end_sync(self, life: int, upto: int, batch: list[tuple[Answer, Outcome]]) -> None:
        if life != self.life:
            return
        assert self.disk is not None
        self.disk.synced(upto)
        self._syncing = False
        for answer, outcome in batch:
            self._let_out(answer, outcome)
        if self._batch or self.disk.written:
            self._begin_sync()

    def crash(self) -> None:
        """Lose the power: memory is gone, and so is what the disk had not synced."""
        assert self.disk is not None, "a manager without a disk would forget everything"
        self.machine.die()
        self.disk.lose_power()
        self.life += 1
        self._batch, self._syncing = [], False

    def restart(self) -> None:
        """Come back with what the disk has kept. Drivers connect again, and say that they may have missed something."""
        assert self.disk is not None
        self.machine.start()
        self.rows = self.restored(self.disk.kept)
        forget_unkept(self.queued, self.rows)
        for session in self.senders:
            self._notify(Notice(session, "", MISSED))

    def restored(self, changes: list[Change]) -> Dictionary:
        """The table that these changes make."""
        rows = Dictionary()
        for change in changes:
            rows.put(change)
        return rows


def forget_unkept(queued: dict[str, float], rows: Dictionary) -> None:
    """A place in line that was not on disk yet, and that nobody was told of, was never taken."""
    for claim_id in [claim_id for claim_id in queued if claim_id not in rows.rows]:
        del queued[claim_id]
