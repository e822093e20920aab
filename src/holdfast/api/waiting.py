"""How long to wait: what a call says, or what the lock was built with."""

from __future__ import annotations

from types import EllipsisType

from holdfast.locks.spec import Spec, check_seconds

Wait = float | None | EllipsisType
"""Seconds, None for ever, or `...` for what the lock was built with."""


def chosen(wait: Wait, spec: Spec) -> float | None:
    """How long to wait: what the call says, else what the lock was built with."""
    return spec.wait if wait is ... else check_seconds("wait", wait)
