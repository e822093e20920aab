"""What a client is told instead of a reply."""

from __future__ import annotations


class WireError(Exception):
    """A request was refused, and nothing was done. `word` is one of those in docs/wire.md."""

    def __init__(self, word: str, text: str) -> None:
        self.word, self.text = word, text
        super().__init__(f"{word} {text}")


class InvalidValue(WireError):
    """A value breaks a rule."""

    def __init__(self, what: str, shown: str, rule: str) -> None:
        self.shown, self.rule = shown, rule
        super().__init__("HFINVALID", f"{what} {shown}: {rule}")

    def of(self, option: str) -> InvalidValue:
        """The same, said of the option that it was given for."""
        return InvalidValue(option, self.shown, self.rule)


class LimitReached(WireError):
    """A limit of the server is reached."""

    def __init__(self, limit: str, value: int, what: str) -> None:
        self.limit, self.value = limit, value
        super().__init__("HFLIMIT", f"the limit {limit} = {value} is reached: {what}")


def may_not_read(prefix: str) -> WireError:
    """Names under this prefix are not for this user."""
    return WireError("NOPERM", f"no right to read {prefix!r}")
