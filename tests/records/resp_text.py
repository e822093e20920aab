"""Replies of the lock server as escaped bytes, with placeholders for what differs between two runs.

A reply is cut out of the stream and written down byte by byte: `*2\\r\\n$4\\r\\nopen\\r\\n:600000\\r\\n`. A placeholder
takes the place of a value that the server chose, and of the length of a string that has one in it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

END = b"\r\n"
AGGREGATES = b"*%>~"
STRINGS = b"$="
TOKENS = range(1_600_000_000_000_000, 2_600_000_000_000_000)
"""Tokens and versions start at the time of the store's creation in µs."""
TIMES = range(1_600_000_000_000, 2_600_000_000_000)
"""Points in time in ms."""
BY_KEY = {"since": "<time>", "at": "<time>", "age": "<ms>", "id": "<connection>"}
LEFT = {"granted": 3, "hf.granted": 4}
"""By the word that a reply begins with: the place of what is left of a time that the request said."""
NEXT_DEATH = ("open", 2)
ROUNDED = 100_000


class Incomplete(Exception):
    """The rest of the reply has not come yet."""


@dataclass
class Names:
    """What stands for values that the server chose, in both directions."""

    base: int | None = None
    """One less than the first token that was seen."""
    by_value: dict[str, str] = field(default_factory=dict)

    def token(self, value: int) -> str:
        if self.base is None:
            self.base = value - 1
        return f"<token{value - self.base:+d}>"

    def name(self, what: str, value: str) -> None:
        """From now on this value is called `<what-1>`, or has the next number."""
        if value not in self.by_value:
            number = 1 + sum(name.startswith(f"<{what}-") for name in self.by_value.values())
            self.by_value[value] = f"<{what}-{number}>"

    def hide(self, text: str) -> str:
        """The text with placeholders."""
        # A claim id begins with its session's id.
        for value in sorted(self.by_value, key=len, reverse=True):
            text = text.replace(value, self.by_value[value])
        if text.startswith("# ") and "\r\n" in text:
            text = re.sub(r"(?<=:)\d[\d.]*", "<n>", re.sub(r"(?<=instance:)\w+", "<instance>", text))
        text = re.sub(r"\b(id|age|idle)=\d+", r"\1=<n>", text)
        text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:<port>", text)
        return re.sub(r"\b[12]\d{15}\b", lambda found: self.token(int(found[0])), text)

    def show(self, text: str) -> str:
        """The text with values for placeholders: what a request sends."""
        for value, name in self.by_value.items():
            text = text.replace(name, value)
        return re.sub(r"<token([+-]\d+)>", lambda found: str((self.base or 0) + int(found[1])), text)


@dataclass
class Reply:
    """One reply, or push, that was cut out of the stream."""

    text: str
    word: str
    """What it begins with, if that is a string: `granted`."""
    is_push: bool


class Reader:
    """Cuts replies out of what a connection sends."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.data = b""
        self._at = 0

    def next(self) -> Reply | None:
        """The next reply; None if it is not there completely."""
        self._at = 0
        try:
            parsed = self._parse()
        except Incomplete:
            return None
        self.data = self.data[self._at :]
        first = parsed[2][0] if isinstance(parsed, tuple) and parsed[2] else None
        word = first[1:] if isinstance(first, str) else ""
        self._learn(word, parsed)
        text = self._render(parsed, "", None)
        return Reply(text, word, text.startswith(">"))

    # A simple reply is text with its type in front; an aggregate is a tuple of its type, its header and its parts.

    def _line(self) -> str:
        end = self.data.find(END, self._at)
        if end < 0:
            raise Incomplete
        line = self.data[self._at : end]
        self._at = end + len(END)
        return line.decode("utf-8", "backslashreplace")

    def _parse(self) -> Parsed:
        line = self._line()
        kind, rest = line[0], line[1:]
        if kind.encode() in (b"*", b"%", b">", b"~") and rest != "-1":
            count = int(rest) * (2 if kind == "%" else 1)
            return kind, line, [self._parse() for _ in range(count)]
        if kind.encode() in (b"$", b"=") and rest != "-1":
            end = self._at + int(rest)
            if len(self.data) < end + len(END):
                raise Incomplete
            text = self.data[self._at : end].decode("utf-8", "backslashreplace")
            self._at = end + len(END)
            return kind + text
        return line

    def _learn(self, word: str, parsed: Parsed) -> None:
        """Name what the server chose: it tells it in these places."""
        if not isinstance(parsed, tuple):
            return
        parts = parsed[2]
        for what, begins, place in (
            ("session", "open", 2), ("secret", "open", 3), ("claim", "granted", 4), ("claim", "queued", 3),
            ("cursor", "locks", 3), ("cursor", "more", 1),
        ):  # fmt: skip
            # With a secret that the client chose, it chose the session's id too.
            if begins == "open" and (len(parts) < 4 or parts[3] in ("$-1", "_")):
                continue
            told = parts[place] if word == begins and len(parts) > place else None
            if isinstance(told, str) and told[0] == "$" and told != "$-1":
                self.names.name(what, told[1:])
        for index, part in enumerate(parts):
            # Next to these names a server says who it is.
            if part in ("$instance", "$version") and isinstance(value := parts[index + 1], str):
                self.names.by_value[value[1:]] = f"<{str(part)[1:]}>"
            if isinstance(part, tuple) and part[2] and part[2][0] == "$more":
                self._learn("more", part)

    def _render(self, parsed: Parsed, key: str, left: int | None) -> str:
        if isinstance(parsed, tuple):
            _, header, parts = parsed
            first = parts[0] if parts else None
            place = LEFT.get(first[1:]) if isinstance(first, str) else None
            rendered = [_escaped(header)]
            for index, part in enumerate(parts):
                before = parts[index - 1] if index else ""
                told = before[1:] if isinstance(before, str) and before[:1] in ("$", "+") else ""
                told = "age" if (first[1:] if isinstance(first, str) else "", index) == NEXT_DEATH else told
                rendered.append(self._render(part, told, index if index == place else None))
            return "".join(rendered)
        kind, text = parsed[0], parsed[1:]
        if kind == ":":
            return f":{self._number(int(text), key, left)}\\r\\n"
        hidden = self.names.hide(text)
        if kind in "$=" and text != "-1":
            length = str(len(text.encode())) if hidden == text else "<n>"
            return f"{kind}{length}\\r\\n{_escaped(hidden, END.decode())}"
        return _escaped(kind + hidden, END.decode())

    def _number(self, value: int, key: str, left: int | None) -> str:
        if key in BY_KEY:
            return BY_KEY[key]
        if left is not None:
            return f"<at most {-(-value // ROUNDED) * ROUNDED}>"
        if value in TOKENS:
            return self.names.token(value)
        return "<time>" if value in TIMES else str(value)


Parsed = str | tuple[str, str, list["Parsed"]]


def _escaped(text: str, end: str = "\r\n") -> str:
    """Text as it stands in a record: without line ends and other control characters."""
    shown = (text + end).replace("\\", "\\\\").replace("\r", "\\r").replace("\n", "\\n").replace("\t", "\\t")
    return "".join(each if each.isprintable() else f"\\x{ord(each):02x}" for each in shown)
