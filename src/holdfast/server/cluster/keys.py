"""Where a cluster of lock servers keeps what in etcd."""

from __future__ import annotations

import re

from holdfast.engines.etcd.keys import end_of
from holdfast.errors import InvalidRequest

DEFAULT_NAME = "holdfast"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Keys:
    """The keys of one cluster."""

    def __init__(self, name: str = DEFAULT_NAME) -> None:
        if not _NAME.fullmatch(name):
            raise InvalidRequest("url option name", name, "it has 1 to 64 letters, digits, dots, dashes or underlines")
        root = f"/holdfast-server/1/{name}/".encode()
        self.head = root + b"head"
        """What the last snapshot is, and where tokens began."""
        self.live = root + b"live/"
        """What changes all the time: the leader, its beat and the log."""
        self.beat = self.live + b"beat"
        """What the leader writes with every renewal of its lease."""
        self.leader = self.live + b"leader"
        self.logs = self.live + b"log/"
        self.snapshots = root + b"snapshot/"
        self.members = root + b"member/"

    def log(self, number: int) -> bytes:
        """One entry of the log."""
        return self.logs + b"%016x" % number

    def number(self, key: bytes) -> int:
        """Which entry of the log that is."""
        return int(key[len(self.logs) :], 16)

    def logs_upto(self, number: int) -> tuple[bytes, bytes]:
        """The range of all entries up to this one."""
        return self.logs, self.log(number + 1)

    def logs_from(self, number: int) -> tuple[bytes, bytes]:
        """The range of all entries from this one on."""
        return self.log(number), end_of(self.logs)

    def snapshot(self, number: int) -> bytes:
        """What the parts of one snapshot start with."""
        return self.snapshots + b"%016x/" % number

    def part(self, number: int, index: int) -> bytes:
        """One part of a snapshot."""
        return self.snapshot(number) + b"%08x" % index

    def head_and_leader(self) -> tuple[bytes, bytes]:
        """The range of these two keys, with the leader's beat between them."""
        return self.head, self.leader + b"\0"

    def member(self, id_: str) -> bytes:
        """The record of one server."""
        return self.members + id_.encode()
