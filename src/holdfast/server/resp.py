"""Replies as bytes, in both versions of RESP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

OK = b"+OK\r\n"
OVER = b"*1\r\n$4\r\nover\r\n"


class Resp:
    """One version of the protocol. The two differ in how nothing is written, maps, and whether there are pushes."""

    __slots__ = ("granted", "map_mark", "nil", "version")

    def __init__(self, version: int) -> None:
        self.version = version
        self.nil = b"_\r\n" if version == 3 else b"$-1\r\n"
        self.map_mark = b"%" if version == 3 else b"*"
        self.granted = b"*4\r\n$7\r\ngranted\r\n:%d\r\n" + self.nil + self.nil
        """The answer to most acquires, with a place for the token."""

    def encode(self, value: Any) -> bytes:
        """Any value as a reply: text, numbers, None, sequences and mappings."""
        if isinstance(value, int):
            return b":%d\r\n" % value
        if isinstance(value, str):
            value = value.encode()
        if isinstance(value, bytes):
            return b"$%d\r\n%b\r\n" % (len(value), value)
        if value is None:
            return self.nil
        if isinstance(value, Mapping):
            count = len(value) if self.version == 3 else 2 * len(value)
            pairs = (self.encode(part) for pair in value.items() for part in pair)
            return b"%b%d\r\n%b" % (self.map_mark, count, b"".join(pairs))
        assert isinstance(value, Sequence), f"{value!r} cannot be a reply"
        return b"*%d\r\n%b" % (len(value), b"".join(map(self.encode, value)))

    def push(self, *parts: Any) -> bytes:
        """Something that nobody asked for at this moment. RESP3 only."""
        assert self.version == 3
        return b">%d\r\n%b" % (len(parts), b"".join(map(self.encode, parts)))


RESP2, RESP3 = Resp(2), Resp(3)


def status(text: str) -> bytes:
    """A word of success."""
    return b"+%b\r\n" % text.encode()


def error(word: str, text: str) -> bytes:
    """An error: its first word is for programs, the text for people. One line, whatever the text has in it."""
    line = " ".join(text.split())
    return b"-%b %b\r\n" % (word.encode(), line.encode(errors="replace"))
