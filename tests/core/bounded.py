"""The crowd on a table whose steps may do next to nothing: what they leave over is done by later steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast.core.table import Outcome, apply
from holdfast.core.table import commands as cmd
from holdfast.core.table.step import Bounds
from tests.core.crowd import Crowd

TIGHT = Bounds(work=1, names=1)


class BoundedCrowd(Crowd):
    """Runs each command with tight bounds, and then all that it has left over."""

    def __init__(self) -> None:
        super().__init__()
        self.longest = 0
        """The most steps that one command took."""

    def run_step(self, command: cmd.Command) -> Outcome:
        if isinstance(command, cmd.Break):
            return self.break_in_steps(command)
        if isinstance(command, cmd.Close):
            return self.close_in_steps(command)
        return self.run_with_rest(command)

    def run_with_rest(self, command: cmd.Command) -> Outcome:
        now, table = self.reference.now, self.table
        whole = apply(command, now, table.answer, table.put, wall=now, bounds=TIGHT)
        rest, steps = list(whole.rest), 1
        while rest:
            part = apply(rest.pop(0), now, table.answer, table.put, wall=now, bounds=TIGHT)
            add(whole, part)
            rest += part.rest
            steps += 1
            assert steps < 1_000, "it never ends"
        self.longest = max(self.longest, steps)
        return whole

    def close_in_steps(self, command: cmd.Close) -> Outcome:
        whole = self.run_with_rest(command)
        while isinstance(whole.reply, cmd.Done) and whole.reply.more:
            part = self.run_with_rest(command)
            add(whole, part)
            whole.reply = part.reply
        return whole

    def break_in_steps(self, command: cmd.Break) -> Outcome:
        whole = self.run_with_rest(replace(command, most=1))
        reply: Any = whole.reply
        claims = reply.claims
        while reply.after is not None:
            assert len(reply.claims) <= 1
            part = self.run_with_rest(replace(command, most=1, after=reply.after, upto=reply.upto))
            add(whole, part)
            reply = part.reply
            claims += reply.claims
        whole.reply = cmd.BreakUnderWay(claims)
        return whole


def add(whole: Outcome, part: Outcome) -> None:
    """Let what a later step did count as a part of an earlier one."""
    whole.changes += part.changes
    whole.notices += part.notices
