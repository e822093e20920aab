"""What the exit code of `holdfast` means, in one place. docs/cli.md has the same table."""

from __future__ import annotations

from holdfast.errors import (
    Deadlock,
    EngineUnavailable,
    HoldfastError,
    InvalidRequest,
    LockLost,
    NotAcquired,
    NotHeld,
    Unsupported,
    WeakerGuarantee,
)

OK = 0
CONFLICT = 1
"""The wait was over, or the question was answered with no. Like flock's."""
BAD_INPUT = 2
"""A name, URL, option or value that cannot be used. Nothing was done. The same as for a wrong option."""
UNAVAILABLE = 69
"""The engine could not be reached, or could not do it. sysexits.h calls it EX_UNAVAILABLE."""
FAILED = 70
"""Another error of Holdfast. sysexits.h calls it EX_SOFTWARE."""
LOST = 75
"""The lock was in danger or lost, and CMD was stopped. sysexits.h: EX_TEMPFAIL, worth another try."""
DEADLOCK = 79
"""Waiting would never have ended."""
NOT_EXECUTABLE = 126
NOT_FOUND = 127
INTERRUPTED = 130
BROKEN_PIPE = 141


def for_signal(number: int) -> int:
    """The code for an end by a signal, as shells give it."""
    return 128 + number


def for_error(error: HoldfastError, conflict: int = CONFLICT) -> int:
    """The code that tells a script what kind of error it was."""
    match error:
        case NotAcquired():
            return conflict
        case InvalidRequest() | Unsupported() | WeakerGuarantee():
            return BAD_INPUT
        case EngineUnavailable():
            return UNAVAILABLE
        case LockLost() | NotHeld():
            return LOST
        case Deadlock():
            return DEADLOCK
    return FAILED
