"""The judge of a simulated run: the same checkers that judge real servers."""

from __future__ import annotations

from holdfast.verify.checkers import exclusion, fence, leaks, order, progress, tokens, updates
from holdfast.verify.finding import Finding
from holdfast.verify.history import History

CHECKS = (
    exclusion.check,
    tokens.check,
    fence.check,
    updates.check,
    updates.check_unfenced,
    order.check,
    progress.check,
    leaks.check,
)


def judge(history: History) -> list[Finding]:
    """What each checker says."""
    return [check(history) for check in CHECKS]


def broken(history: History) -> list[Finding]:
    """The claims that did not hold."""
    return [finding for finding in judge(history) if finding.state == "broken"]
