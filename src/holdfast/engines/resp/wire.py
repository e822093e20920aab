"""The Redis wire protocol, as far as both drivers of it need the same: addresses, requests, and what errors mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha1
from importlib.resources import files
from typing import Any, NamedTuple, cast

from hiredis import ReplyError as ReplyError
from hiredis import pack_command

from holdfast.errors import EngineFailure, InvalidRequest

Part = str | bytes | int

_pack = cast(Callable[[tuple[str | bytes, ...]], bytes], pack_command)


def pack(command: tuple[Part, ...]) -> bytes:
    """A command as bytes.

    hiredis never sees a number: it asks Python for its text and takes the answer for granted. A signal handler can
    run in there, and if it raises, hiredis ends the process with a segmentation fault.
    """
    return _pack(tuple([str(part) if part.__class__ is int else part for part in command]))  # type: ignore[misc]


NOT_DONE = (
    "BUSY", "CLUSTERDOWN", "DENIED", "LOADING", "MASTERDOWN", "MISCONF", "NOAUTH", "NOPERM", "NOREPLICAS",
    "NOSCRIPT", "OOM", "READONLY", "SPENT", "TRYAGAIN", "UNBLOCKED", "WRONGPASS", "NOPROTO", "ASK", "MOVED",
)  # fmt: skip
"""What a server says before it has changed anything: a script fails at its first write, or not at all."""

FIRST_WRITE = "Write commands not allowed after non deterministic commands"
TOO_OLD = (FIRST_WRITE, "Unknown Redis command", "unknown command")
"""What servers say that lack what the scripts need."""

WRONG_SERVER = ("CLUSTERDOWN", "LOADING", "MASTERDOWN", "READONLY")
"""What a server says that is not the primary (any more), or not in the cluster: look for it again."""


class Address(NamedTuple):
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, default_port: int) -> Address:
    """Take `host`, `host:port` or `[v6]:port` apart."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(default_port)
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise InvalidRequest("url", text, "an address is host:port, with a port from 1 to 65535")
    return Address(host.strip("[]"), int(port))


class Lost(Exception):
    """The connection is gone or silent: whether the request was carried out is not known."""

    def __init__(self, problem: str, *, sent: bool = True, silent: bool = False, cut: bool = False) -> None:
        self.problem, self.sent, self.silent, self.cut = problem, sent, silent, cut
        super().__init__(problem)

    def at_login(self, where: str) -> Lost:
        """The same, if it happened to a login: nothing was sent for anybody, and one that was cut is tried again."""
        return Lost(f"{where}: {self.problem}", sent=False, silent=self.silent, cut=self.sent and not self.silent)


class Script:
    """A Lua script, put together from its own file and those that it uses."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = compose(name)
        self.sha = sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    @cached_property
    def start(self) -> tuple[str, str]:
        """How the short form of its call begins."""
        return ("EVALSHA", self.sha)


def compose(name: str) -> str:
    """The text of a script: each line `--@use part` is replaced by that part."""
    lines = (files("holdfast.engines.resp") / "lua" / f"{name}.lua").read_text().splitlines()
    return "\n".join(compose(line.split()[1]) if line.startswith("--@use ") else line for line in lines)


@dataclass(frozen=True, slots=True)
class Joins:
    """How a script's call is put to a script that does many of its kind at once."""

    script: Script
    takes: int
    """How many tokens it may need."""


@dataclass(frozen=True, slots=True)
class Form:
    """What a script's calls have in common. All keys of a namespace lie in one slot, so its prefix stands for them."""

    script: Script
    prefix: str
    repeats: bool = True
    """Whether it is safe to send one again when nobody knows whether it was carried out."""
    again: Part | None = None
    """The last argument then, if that differs."""
    joins: Joins | None = None
    """How some may be sent together with others, as one."""
    spread: Callable[..., tuple[Part, ...]] | None = None
    """What makes the arguments of what a request has, if that is left until it is sent by itself."""


@dataclass(slots=True)
class Request:
    """One script call."""

    form: Form
    args: tuple[Any, ...]
    own: str = ""
    """What is its own among those that go as one; empty if it goes by itself."""
    group: str = ""
    """What those have in common."""
    sent_twice: bool = False
    """Whether it was sent again: the first one may still arrive, after whatever comes next."""

    @property
    def repeats(self) -> bool:
        return self.form.repeats

    def packed(self, repeated: bool) -> bytes:
        """The short form: the server knows the script by its hash."""
        return pack((*self.form.script.start, "1", self.form.prefix, *self._sent(repeated)))

    def packed_in_full(self, repeated: bool) -> bytes:
        """The long form, for a server that does not know the script (any more)."""
        return pack(("EVAL", self.form.script.text, 1, self.form.prefix, *self._sent(repeated)))

    def _sent(self, repeated: bool) -> tuple[Part, ...]:
        args = self.args if self.form.spread is None else self.form.spread(*self.args)
        again = self.form.again if repeated else None
        return args if again is None else (*args[:-1], again)


@dataclass(slots=True)
class Plain:
    """An ordinary command, for looking at a server."""

    parts: tuple[Part, ...]
    repeats: bool = True
    sent_twice: bool = False

    def packed(self, repeated: bool) -> bytes:
        return pack(self.parts)

    packed_in_full = packed


AnyRequest = Request | Plain


@dataclass(frozen=True, slots=True)
class Login:
    """What a new connection says first."""

    user: str = ""
    password: str = field(default="", repr=False)
    database: int = 0
    primary: bool = False
    """Whether the server has to be a primary."""

    def commands(self) -> list[tuple[Part, ...]]:
        found: list[tuple[Part, ...]] = []
        if self.password:
            found.append(("AUTH", self.user, self.password) if self.user else ("AUTH", self.password))
        if self.database:
            found.append(("SELECT", self.database))
        if self.primary:
            found.append(("ROLE",))
        return found

    def packed(self) -> bytes:
        return b"".join(pack(command) for command in self.commands())

    def check(self, replies: list[Any]) -> None:
        """Raise Lost if a server refused one of the commands, or is not what it has to be."""
        for command, reply in zip(self.commands(), replies, strict=True):
            if isinstance(reply, ReplyError):
                raise Lost(f"{command[0]!s} was refused: {reply}", sent=False)
            if command[0] == "ROLE" and reply[0] != b"master":
                raise Lost("the server is a replica", sent=False)


def redirection(error: ReplyError, asked: Address) -> tuple[str, Address] | None:
    """Where a cluster says that the slot is: ("MOVED" or "ASK", address)."""
    words = str(error).split()
    if words and words[0] in ("MOVED", "ASK"):
        host, _, port = words[2].rpartition(":")
        return words[0], Address(known_host(host.strip("[]"), asked), int(port))
    return None


def known_host(host: str, asked: Address) -> str:
    """The host that a node of a cluster names. One that does not know it leaves it out: it is that of who was asked."""
    return asked.host if host in ("", "?") else host


def refused(address: str, error: ReplyError, repeated: bool) -> EngineFailure:
    """What an error reply means for the caller."""
    text = str(error)
    old = any(words in text for words in TOO_OLD)
    known = text.split(" ", 1)[0] in NOT_DONE or (old and FIRST_WRITE in text)
    problem = f"the server is too old: Redis 6.0 or newer, or Valkey, is needed (it says: {text})" if old else text
    return EngineFailure(address, problem, "not done" if known and not repeated else "unknown")


def as_mapping(reply: list[bytes]) -> Mapping[str, str]:
    """A flat list of names and values as a mapping."""
    texts = [part.decode() for part in reply]
    return dict(zip(texts[::2], texts[1::2], strict=True))
