"""Scripted conversations with a lock server over raw sockets: each request, and the exact bytes of its reply.

    # A lock that is free is granted.
    a: HF.OPEN billing001 secret-of-billing-0001 600000
      < *4\\r\\n$4\\r\\nopen\\r\\n:600000\\r\\n$10\\r\\nbilling001\\r\\n$-1\\r\\n
    b& HF.ACQUIRE shipping01-1 k BLOCK
    until 1 waiters of k

A comment line begins a conversation. `a` and `b` are connections, opened when they are first named. A request is sent
as an array of its words; a word in quotes is a bytes literal of Python. What follows the connection's name:

    :  send a request, and read its reply
    +  keep a request, and send it in one write with the next one, which reads a reply for each
    &  send a request, and read nothing yet
    =  read the reply to a request that was sent with &
    !  read a push (RESP3 only)
    *  send these bytes as they are, and read a reply; `*3` reads three
    .  read until the server closes the connection

`server stops` asks the server to end, and waits until it has. `until N waiters of NAME` looks at a lock again and
again, and so does `until N holders of NAME`; nothing of that is recorded. `<resp>` stands for the version of the
protocol. The lines with < are what came: `2<` in RESP2 only, `3<` in RESP3 only. At the end every open connection is
asked for a PING, which shows pushes that no line has read.
"""

from __future__ import annotations

import ast
import re
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.records.resp_text import Names, Reader, Reply

PATIENCE = 30.0
CLOSED = "(closed)"
WORD = re.compile(r'"(?:[^"\\]|\\.)*"|\S+')
STEP = re.compile(r"(?P<who>[a-z])(?P<what>[:+&=!.]|\*\d*)(?: (?P<words>.*))?")
UNTIL = re.compile(r"until (\d+) (holders|waiters) of (\S+)")
VERSIONS = (2, 3)


@dataclass
class Conversation:
    """What a comment line says, and the lines under it that are not replies."""

    title: str
    steps: list[str] = field(default_factory=list)


def read(text: str) -> list[Conversation]:
    """The conversations of a file."""
    found: list[Conversation] = []
    for line in text.splitlines():
        if line.startswith("# "):
            found.append(Conversation(line[2:]))
        elif line.strip() and not re.match(r"\s+(end \w )?[23]?<", line):
            found[-1].steps.append(line.strip())
    return found


def pack(words: list[bytes]) -> bytes:
    """A request as the wire has it."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


class Connection:
    """A raw socket, and the replies and pushes that came over it."""

    def __init__(self, port: int, names: Names) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = Reader(names)
        self.pushes: list[Reply] = []
        self.kept = b""
        self.waiting = 0
        """How many requests are kept for one write."""
        self.closed = False

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def next(self) -> Reply:
        """The next thing that comes, reply or push."""
        while (found := self.reader.next()) is None:
            data = self.socket.recv(65536)
            if not data:
                raise EOFError
            self.reader.data += data
        return found

    def reply(self) -> str:
        """The next reply; pushes before it are kept. `(closed)` if the server has closed the connection."""
        try:
            while (found := self.next()).is_push:
                self.pushes.append(found)
        except (EOFError, ConnectionError):
            self.closed = True
            return CLOSED
        return found.text

    def push(self) -> Reply:
        if self.pushes:
            return self.pushes.pop(0)
        found = self.next()
        assert found.is_push, f"a reply where a push should come: {found.text}"
        return found

    def rest(self) -> Iterator[str]:
        """What comes until the server closes."""
        try:
            while True:
                yield self.next().text
        except (EOFError, ConnectionError):
            self.closed = True
            yield CLOSED


class Player:
    """Plays a file on one server in one version of the protocol."""

    def __init__(
        self, port: int, version: int, hello: list[bytes], login: list[bytes], stop: Callable[[], object]
    ) -> None:
        self.port, self.version, self.stop = port, version, stop
        self.hello, self.login = hello, login
        """What a connection says first, and what one says that may see everything; nothing of it is recorded."""
        self.names = Names()
        self.connections: dict[str, Connection] = {}

    def play(self, conversation: Conversation) -> list[list[str]]:
        """What came at each step, and at the end."""
        try:
            return [*(self._came(step) for step in conversation.steps), list(self._end())]
        finally:
            for connection in self.connections.values():
                connection.socket.close()
            self.connections.clear()

    def _connect(self, first: list[bytes]) -> Connection:
        connection = Connection(self.port, Names() if first is self.login else self.names)
        if first:
            connection.send(pack(first))
            connection.reply()
        return connection

    def _came(self, step: str) -> list[str]:
        try:
            return list(self._step(step))
        except TimeoutError as error:
            raise AssertionError(f"nothing came within {PATIENCE:g} s: {step}") from error

    def _step(self, step: str) -> Iterator[str]:
        if step == "server stops":
            self.stop()
            return
        if until := UNTIL.fullmatch(step):
            self._wait_until(int(until[1]), until[2], until[3])
            return
        found = STEP.fullmatch(step)
        assert found, f"not a step: {step}"
        who, what = found["who"], found["what"]
        if who not in self.connections:
            self.connections[who] = self._connect(self.hello)
        connection = self.connections[who]
        if what == "!":
            if self.version == 3:
                yield connection.push().text
        elif what == ".":
            yield from connection.rest()
        elif what == "=":
            yield connection.reply()
        elif what[0] == "*":
            connection.send(b"".join(self._words(found["words"])))
            for _ in range(int(what[1:] or 1)):
                yield connection.reply()
        else:
            yield from self._request(connection, what, pack(self._words(found["words"])))

    def _request(self, connection: Connection, what: str, request: bytes) -> Iterator[str]:
        connection.kept += request
        connection.waiting += 1
        if what == "+":
            return
        connection.send(connection.kept)
        count, connection.kept, connection.waiting = connection.waiting, b"", 0
        if what == ":":
            for _ in range(count):
                yield connection.reply()

    def _words(self, text: str) -> list[bytes]:
        return [self._word(word) for word in WORD.findall(text)]

    def _word(self, word: str) -> bytes:
        if word[0] == '"':
            return bytes(ast.literal_eval("b" + word))
        return self.names.show(word).replace("<resp>", str(self.version)).encode()

    def _wait_until(self, count: int, whom: str, name: str) -> None:
        looks = self._connect(self.login)
        try:
            until = time.monotonic() + PATIENCE
            while self._count(looks, whom, name) != count:
                assert time.monotonic() < until, f"there were never {count} {whom} of {name}"
        finally:
            looks.socket.close()

    def _count(self, looks: Connection, whom: str, name: str) -> int:
        looks.send(pack([b"HF.INSPECT", name.encode()]))
        found = re.search(rf"{whom}\\r\\n\*(\d+)", looks.reply())
        assert found
        return int(found[1])

    def _end(self) -> Iterator[str]:
        for who, connection in sorted(self.connections.items()):
            if connection.closed:
                continue
            connection.send(pack([b"PING"]))
            if connection.reply() == CLOSED:
                yield f"end {who} {CLOSED}"
            yield from (f"end {who} {push.text}" for push in connection.pushes)


def written(conversation: Conversation, came: dict[int, list[list[str]]]) -> str:
    """The conversation as a record has it."""
    lines = [f"# {conversation.title}"]
    for index, step in enumerate([*conversation.steps, ""]):
        if step:
            lines.append(step)
        two, three = (came[version][index] for version in VERSIONS)
        if two == three:
            lines += [_came("<", text) for text in two]
        else:
            lines += [_came("2<", text) for text in two] + [_came("3<", text) for text in three]
    return "\n".join(lines)


def _came(mark: str, text: str) -> str:
    if text.startswith("end "):
        _, who, text = text.split(" ", 2)
        return f"  end {who} {mark} {text}"
    return f"  {mark} {text}"
