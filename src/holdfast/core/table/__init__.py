"""The lock table: a pure state machine that runs on dictionaries and inside a transaction alike."""

from holdfast.core.table.dictionary import Dictionary
from holdfast.core.table.machine import Outcome, apply, begin

__all__ = ["Dictionary", "Outcome", "apply", "begin"]
