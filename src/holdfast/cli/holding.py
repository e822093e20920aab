"""What `run` and `elect` share: CMD under a grant, from the start to the release."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import click

import holdfast
from holdfast.cli import exit_codes
from holdfast.cli.command import GRACE_SHARE, LONGEST_GRACE_SHARE, Command, Ending, die_of
from holdfast.cli.interruption import Interrupted, die_of_ctrl_c
from holdfast.cli.report import Report
from holdfast.errors import EngineUnavailable, HoldfastError, InvalidRequest, LockLost
from holdfast.locks.spec import check_seconds
from holdfast.runtime import clock


class RunsCommand(click.Command):
    """A command that takes CMD: an option of CMD before which no `--` stands is not taken for a mistake of its own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        told = "--" in args
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if told:
                raise
            message = f"{error.format_message()} If it is meant for CMD, write -- before CMD."
            raise click.UsageError(message, ctx) from error


@dataclass(frozen=True)
class Terms:
    """For how long CMD may be sure of its lock, and how it is told to stop."""

    ttl: float
    grace: float
    max_hold: float | None = None


def make_terms(ttl: float, grace: float | None, max_hold: float | None = None) -> Terms:
    """Check the grace, or choose it: a quarter of the ttl, or of max_hold if that is shorter."""
    check_seconds("max_hold", max_hold, least=0.1)
    life = ttl if max_hold is None else min(ttl, max_hold)
    if grace is None:
        grace = life * GRACE_SHARE
    if not 0 < grace <= life * LONGEST_GRACE_SHARE:
        rule = f"CMD gets more than 0 s and at most {LONGEST_GRACE_SHARE:.0%} of the ttl and of max_hold"
        raise InvalidRequest("grace", grace, rule)
    return Terms(ttl, grace, max_hold)


def hold(command: Command, grant: holdfast.Grant, terms: Terms, report: Report) -> Ending:
    """Run CMD under a grant and give the grant back. A loss that is noticed at the end counts too."""
    started = clock.now()
    env = {
        "HOLDFAST_NAME": grant.name,
        "HOLDFAST_TOKEN": str(grant.token),
        "HOLDFAST_OWNER": grant.owner,
        # None of an outer `holdfast run` either.
        "HOLDFAST_SLOT": None if grant.slot is None else str(grant.slot),
    }
    report.tell("granted", token=grant.token, owner=grant.owner, slot=grant.slot)

    def stopping() -> None:
        reason = why_stopping(grant, terms, clock.now() - started)
        report.say(f"stopping CMD: {reason}", "stopping", reason=reason)

    ending = command.run(grant, env, terms.ttl, terms.grace, stopping)
    if ending.problem:
        report.say(ending.problem, "problem")
    return give_back(grant, ending, report)


def why_stopping(grant: holdfast.Grant, terms: Terms, held: float) -> str:
    """What put the grant in danger, as far as this process can tell."""
    try:
        grant.check()
    except LockLost as lost:
        return f"the grant of {grant.name!r} (token {grant.token}) is lost: {lost.reason}"
    if terms.max_hold is not None and held >= terms.max_hold - 2 * terms.grace:
        return f"{grant.name!r} has been held for nearly as long as --max-hold allows"
    return f"no heartbeat was confirmed for too long, {grant.name!r} would be lost in {grant.remaining:.2g} s"


def give_back(grant: holdfast.Grant, ending: Ending, report: Report) -> Ending:
    """Release. CMD's work is done, so an engine that cannot be told now changes nothing but the delay."""
    try:
        grant.release()
    except LockLost as lost:
        if not ending.stopped:
            report.say(str(lost), "lost", reason=lost.reason)
            return Ending(exit_codes.LOST, stopped=True)
    except EngineUnavailable as error:
        report.say(f"{grant.name!r} could not be released, it ends with its ttl: {error}", "unreleased")
    return ending


def close_quietly(client: holdfast.Client, report: Report) -> None:
    """End the session; if the engine cannot be told, the session ends by itself."""
    try:
        client.close()
    except EngineUnavailable as error:
        report.say(f"the session could not be ended, it ends with its ttl: {error}", "unreleased")


def exit_after(work: Callable[[], Ending], command: Command, report: Report, conflict: int) -> None:
    """Do it, tell how it ended, and exit with the code that this means."""
    by_key, ctrl_c = 0, False
    try:
        report.take_warnings()
        ending = work()
        code, by_key = ending.exit_code, ending.by_key
    except Interrupted as interrupted:
        code = exit_codes.for_signal(interrupted.number)
    except KeyboardInterrupt:
        code, ctrl_c = exit_codes.INTERRUPTED, True
    except HoldfastError as error:
        code = exit_codes.for_error(error, conflict)
        if not (report.quiet and code == conflict):
            Report(report.name, quiet=False, as_json=report.as_json).say(
                " ".join(str(error).split()), "error", error=type(error).__name__
            )
    finally:
        command.close()
    report.tell("ended", exit_code=code)
    if ctrl_c:
        die_of_ctrl_c()
    if by_key:
        sys.stdout.flush()
        die_of(by_key)
    click.get_current_context().exit(code)
