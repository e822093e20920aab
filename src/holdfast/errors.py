"""What can go wrong, each with the facts as attributes and a message built from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from holdfast.text import one_line

if TYPE_CHECKING:
    from holdfast.model import Link, Party

Outcome = Literal["not done", "unknown"]


class HoldfastError(Exception):
    """The root of everything that Holdfast raises. Its message is one line without control characters."""

    def __init__(self, message: str = "") -> None:
        super().__init__(one_line(message))

    def __reduce__(self) -> tuple[object, ...]:
        # Not as Python does it, which calls the class with the message: another process could not read it.
        return _made_again, (type(self), self.args, self.__dict__)


def _made_again(kind: type[HoldfastError], args: tuple[object, ...], facts: dict[str, object]) -> HoldfastError:
    """An error that was copied, or that came from another process."""
    made = kind.__new__(kind)
    made.args = args
    made.__dict__.update(facts)
    return made


class NotAcquired(HoldfastError, TimeoutError):
    """The wait was over before the lock was granted. Nothing is held and no place in line is kept."""

    def __init__(
        self,
        name: str,
        waited: float,
        *,
        holders: Sequence[Party] = (),
        place: int | None = None,
        kind: str = "lock",
    ) -> None:
        self.name, self.waited, self.kind = name, waited, kind
        self.holders, self.place = tuple(holders), place
        missing = {"latch": "did not open", "barrier": "was not filled"}.get(kind, "was not granted")
        message = f"{kind} {name!r} {missing} within {waited:.3g} s"
        if self.holders:
            message += f"; held by {', '.join(holder.brief() for holder in self.holders[:3])}"
        if len(self.holders) > 3:
            message += f" and {len(self.holders) - 3} more"
        if place is not None:
            message += f"; place {place} in line"
        super().__init__(message)


class LockLost(HoldfastError):
    """The grant is no longer ours: whatever was done since may have met another holder."""

    def __init__(self, name: str, token: int, reason: str) -> None:
        self.name, self.token, self.reason = name, token, reason
        super().__init__(
            f"the grant of {name!r} (token {token}) was lost: {reason}; "
            "stop, and let a fence refuse what is still under way"
        )


class NotHeld(HoldfastError):
    """A grant was used after it had been released."""

    def __init__(self, name: str, token: int, reason: str = "it was released already") -> None:
        self.name, self.token, self.reason = name, token, reason
        super().__init__(f"the grant of {name!r} (token {token}) is not held: {reason}")


class StaleToken(HoldfastError):
    """The resource has seen a higher token: a later holder has written, this one must not."""

    def __init__(self, resource: str, presented: int, highest: int) -> None:
        self.resource, self.presented, self.highest = resource, presented, highest
        super().__init__(
            f"token {presented} is stale for {resource!r}: {highest} was seen; "
            "the lock has passed to a later holder, take it again before you write"
        )


class Deadlock(HoldfastError):
    """Waiting would never end: the claim closes a cycle. It was refused; nothing else was touched."""

    def __init__(self, name: str, cycle: Sequence[Link]) -> None:
        self.name, self.cycle = name, tuple(cycle)
        story = "; ".join(str(link) for link in self.cycle)
        super().__init__(f"waiting for {name!r} would never end: {story}. Release one of them, then try again")


class Conflict(HoldfastError):
    """Somebody else changed the value first. Nothing was written."""

    def __init__(self, name: str, expected: int | None, current: int, what: str = "version") -> None:
        self.name, self.expected, self.what = name, expected, what
        self.current: int | None = current
        super().__init__(f"{name!r} is at {what} {current}, not {expected}: read it again, then decide again")


class RecordedFailure(HoldfastError):
    """The work was done once, failed, and its failure is what was recorded: it is not tried again."""

    def __init__(self, name: str, error: str, problem: str) -> None:
        self.name, self.error, self.problem = name, error, problem
        super().__init__(f"the work under {name!r} failed with {error}: {problem}; forget() it to let it run again")


class EngineUnavailable(HoldfastError, ConnectionError):
    """The engine did not do it ("not done"), or nobody can say whether it did ("unknown")."""

    def __init__(self, engine: str, problem: str, outcome: Outcome) -> None:
        self.engine, self.problem = engine, problem
        self.outcome: Outcome = outcome
        super().__init__(f"{engine}: {problem} (outcome: {outcome})")


class EngineFailure(EngineUnavailable):
    """EngineUnavailable as an engine raises it: it is about the call in which it is caught, and about no other.

    A signal handler can raise any error in the middle of a call, also an EngineUnavailable that another call
    has ended with. So what a call concludes about the engine it concludes from this type alone. The blocking
    runtime gives its callers the public error instead, so no handler can raise this one.
    """

    def __init_subclass__(cls) -> None:
        # A caller in a task gets an engine's own kind as it is too.
        cls.__name__ = cls.__qualname__ = EngineUnavailable.__name__

    def __reduce__(self) -> tuple[object, ...]:
        return _made_again, (EngineUnavailable, self.args, self.__dict__)

    def public(self) -> EngineUnavailable:
        """The same error, for the caller of the API."""
        error = _made_again(EngineUnavailable, self.args, self.__dict__)
        error.__cause__, error.__context__ = self.__cause__, self.__context__
        error.__suppress_context__ = self.__suppress_context__
        assert isinstance(error, EngineUnavailable)
        return error.with_traceback(self.__traceback__)


# A caller in a task gets it as it is, under the name that is documented.
EngineFailure.__name__ = EngineFailure.__qualname__ = EngineUnavailable.__name__


class Unsupported(HoldfastError):
    """This engine cannot do that; another one can."""

    def __init__(self, engine: str, what: str, instead: str) -> None:
        self.engine, self.what, self.instead = engine, what, instead
        super().__init__(f"{engine} cannot do {what}; {instead} can")


class WeakerGuarantee(HoldfastError):
    """The engine promises less than `require` asks for."""

    def __init__(self, engine: str, missing: Iterable[str], summary: str) -> None:
        self.engine, self.missing, self.summary = engine, tuple(sorted(missing)), summary
        super().__init__(f"{engine} does not promise {', '.join(self.missing)}: {summary}")


class InvalidRequest(HoldfastError, ValueError):
    """Something in the call itself is wrong. Nothing was sent."""

    def __init__(self, argument: str, value: object, rule: str) -> None:
        self.argument, self.value, self.rule = argument, value, rule
        try:
            shown = repr(value)
        except Exception:  # noqa: BLE001 - what is wrong with it may be what keeps it from being shown
            shown = f"<{type(value).__name__}>"
        if len(shown) > 80:
            shown = f"{shown[:77]}…"
        super().__init__(f"{argument}={shown}: {rule}")
