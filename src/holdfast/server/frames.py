"""Requests out of bytes: RESP arrays of bulk strings, or lines of words from a terminal.

hiredis is not used on this side. It makes a list as long as a frame *says* that it is, so that twelve
bytes can cost gigabytes, and takes every type of RESP. With a look at each frame for that it was no
faster than what is done here: one split for all that arrived, and a comparison of the lengths.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

MOST_ARGUMENTS = 64
MOST_FRAMES = 512
"""How many requests are given at a time: as a list each takes many times its bytes."""
MOST_PARTS = 16 * MOST_FRAMES
MOST_LINE = 4096
"""Bytes of a line from a terminal."""
MOST_HEADER = 16
"""Bytes of `*n` or `$n` with their line end."""
HTTP = frozenset({b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"PATCH", b"OPTIONS", b"CONNECT", b"TRACE"})
"""How a line of HTTP begins, other than with `Host:`. No command may have one of these names."""

_COUNTS = {b"*%d" % count: count for count in range(1, MOST_ARGUMENTS + 1)}
_PARTS = {header: 2 * count + 2 for header, count in _COUNTS.items()}
"""How many parts a request is split into that begins so, with an empty one after it."""
_MOST_PARTS_OF_ONE = max(_PARTS.values())
_LENGTHS = [b"$%d" % length for length in range(4096)]
_length = _LENGTHS.__getitem__
_NOTHING = re.compile(rb"(?:[ \t\r\n]++|\*0\r\n)++")
"""Empty requests, passed all at once: whoever sends nothing else costs others no time."""

Frame = Sequence[bytes]


class FrameError(Exception):
    """The bytes are not a request. What comes after them cannot be told apart any more."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"Protocol error: {problem}")


class FrameReader:
    """Takes what arrives, and gives the requests that are complete.

    Keeps no more than one frame of `most` bytes and what arrived with it, and looks at an incomplete one
    again only when what it lacks can be there.
    """

    __slots__ = ("_needed", "_rest", "error", "more", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self.error: FrameError | None = None
        """Set when what followed the requests given last was no request."""
        self.more = False
        """Whether there may be further requests in what has arrived: `further` gives them."""
        self._rest = bytearray()
        self._needed = 0

    @property
    def size(self) -> int:
        """Bytes that were not given as requests yet."""
        return len(self._rest)

    def single(self, data: bytes) -> Frame | None:
        """The request that `data` is, if it is just one, of short arguments without line ends in them.

        None if it is anything else: then it has not been taken.
        """
        if self._rest or len(data) > self.most or self.error is not None:
            return None
        parts = data.split(b"\r\n", _MOST_PARTS_OF_ONE)
        if len(parts) != _PARTS.get(parts[0]) or parts[-1]:
            return None
        arguments = parts[2::2]
        try:
            return arguments if [*map(_length, map(len, arguments))] == parts[1:-1:2] else None
        except IndexError:
            return None

    def feed(self, data: bytes) -> list[Frame]:
        """The requests that are complete now; the first of them, if they are many."""
        if self._rest:
            self._rest += data
            if self.more or len(self._rest) < self._needed:
                return []
            data = bytes(self._rest)
            self._rest.clear()
        return self._take(data)

    def keep(self, data: bytes) -> None:
        """Take bytes whose requests are asked for later, by `further`."""
        self._rest += data
        self.more = True

    def further(self) -> list[Frame]:
        """The next of the requests that arrived, when those given before are done."""
        if not self.more:
            return []
        self.more = False
        data = bytes(self._rest)
        self._rest.clear()
        return self._take(data)

    def _take(self, data: bytes) -> list[Frame]:
        # What is no longer than one frame may be holds none that is too long.
        split = _split(data) if len(data) <= self.most else None
        if split is None:
            return self._scan(data)
        frames, rest = split
        if rest:
            self._rest += rest
            self.more = True
        return frames

    def _scan(self, data: bytes) -> list[Frame]:
        """The same frame by frame: for binary values, pieces of frames, lines, and what is no request."""
        frames: list[Frame] = []
        at = 0
        try:
            while at < len(data):
                if (nothing := _NOTHING.match(data, at)) is not None:
                    at = nothing.end()
                    continue
                frame, end = _frame(data, at, self.most) if data[at] == 42 else _line(data, at)
                if frame is None:
                    if end - at > self.most:
                        raise FrameError(f"a request has at most {self.most} bytes")
                    self._rest += data[at:]
                    self._needed = end - at
                    break
                frames.append(frame)
                at = end
                if len(frames) == MOST_FRAMES and at < len(data):
                    self._rest += data[at:]
                    self.more = True
                    break
        except FrameError as error:
            self.error = error
        return frames


def _split(data: bytes) -> tuple[list[Frame], bytes] | None:
    """`data` as whole frames of short arguments without line ends in them; None if it is anything else.

    The second is what comes after them, if they are too many for one time.
    """
    parts = data.split(b"\r\n", MOST_PARTS)
    last = len(parts) - 1
    whole = last < MOST_PARTS
    if whole and parts[last]:
        return None
    alike = _alike(parts) if whole else None
    if alike is not None:
        return alike, b""
    frames: list[Frame] = []
    at = 0
    try:
        while at < last and len(frames) < MOST_FRAMES:
            end = at + 2 * _COUNTS[parts[at]] + 1
            if end > last and not whole:
                break
            arguments = parts[at + 2 : end : 2]
            if list(map(_length, map(len, arguments))) != parts[at + 1 : end : 2] or end > last:
                return None
            frames.append(arguments)
            at = end
    except LookupError:
        return None
    return frames, b"\r\n".join(parts[at:])


def _alike(parts: list[bytes]) -> list[Frame] | None:
    """The same for frames that have all the same number of arguments, as those of one client often do; else None."""
    size = 2 * _COUNTS.get(parts[0], MOST_PARTS) + 1
    count, rest = divmod(len(parts) - 1, size)
    if rest or not 1 < count <= MOST_FRAMES or parts[0:-1:size].count(parts[0]) != count:
        return None
    columns = [parts[at:-1:size] for at in range(2, size, 2)]
    try:
        for at, column in enumerate(columns):
            if [*map(_length, map(len, column))] != parts[2 * at + 1 : -1 : size]:
                return None
    except IndexError:
        return None
    return list(zip(*columns, strict=True))


def _frame(data: bytes, at: int, most: int) -> tuple[Frame | None, int]:
    """The frame at `at` and where it ends; None, and up to where there has to be more, if it is incomplete."""
    count, at_argument = _header(data, at, "multibulk")
    if count is None:
        return None, at_argument
    if count > MOST_ARGUMENTS:
        raise FrameError(f"a request has at most {MOST_ARGUMENTS} arguments")
    frame = []
    for _ in range(count):
        if at_argument >= len(data):
            return None, at_argument + 1
        if data[at_argument] != 36:
            raise FrameError(f"expected '$', got {chr(data[at_argument])!r}")
        length, start = _header(data, at_argument, "bulk")
        if length is None:
            return None, start
        end = start + length
        if end + 2 - at > most:
            raise FrameError(f"a request has at most {most} bytes")
        if end + 2 > len(data):
            return None, end + 2
        if data[end : end + 2] != b"\r\n":
            raise FrameError("an argument is longer than it says")
        frame.append(data[start:end])
        at_argument = end + 2
    return frame, at_argument


def _header(data: bytes, at: int, what: str) -> tuple[int | None, int]:
    """The number behind a type byte, and where the line ends; None, and where it can end, if it is incomplete."""
    end = data.find(b"\r\n", at, at + MOST_HEADER)
    if end < 0:
        if len(data) - at >= MOST_HEADER:
            raise FrameError(f"invalid {what} length")
        return None, len(data) + 1
    digits = data[at + 1 : end]
    if not digits.isdigit():
        raise FrameError(f"invalid {what} length")
    return int(digits), end + 2


def _line(data: bytes, at: int) -> tuple[Frame | None, int]:
    """The words of a line."""
    end = data.find(b"\n", at, at + MOST_LINE)
    if end < 0:
        if len(data) - at >= MOST_LINE:
            raise FrameError(f"a line has at most {MOST_LINE} bytes")
        return None, len(data) + 1
    words = data[at:end].split()
    if len(words) > MOST_ARGUMENTS:
        raise FrameError(f"a request has at most {MOST_ARGUMENTS} arguments")
    if words and ((first := words[0].upper()) in HTTP or first.startswith(b"HOST:")):
        # Any web page can have a browser post lines to a port of this machine: they are not its user's commands.
        raise FrameError("this is no HTTP server, and nothing that follows is carried out")
    return words, end + 1
