"""What this machine or this target does not let the verifier do."""

from __future__ import annotations

from holdfast.errors import HoldfastError


class NotAllowed(HoldfastError):
    """A fault cannot be made here. It is reported as not tested, with the reason."""

    def __init__(self, what: str, reason: str) -> None:
        self.what, self.reason = what, reason
        super().__init__(f"{what} cannot be made here: {reason}")
