"""Batches as entries of the log in etcd, and back.

Every byte of a batch is written by three nodes and read by the followers, so it is compressed. A batch is one entry,
unless it is larger than etcd takes in a request: then several, of which the last says so. Those of a batch that was
never finished count for nothing: nobody was answered.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

from holdfast.server import codec
from holdfast.server.codec import Batch, Untrusted

LARGEST = 1 << 20
"""Bytes of one entry. etcd takes 1.5 MiB a request unless told otherwise."""
MORE, LAST = b"+", b"."


def packed(blob: bytes, least: int) -> list[bytes]:
    """The entries of a batch, at least so many: some may be empty."""
    pieces = split(zlib.compress(blob, 1))
    return [MORE] * (least - len(pieces)) + pieces


def unpacked(data: bytes) -> bytes:
    """The batch whose entries these are, put together."""
    if data[:1].isdigit():
        return data  # written before they were compressed: a batch begins with its version
    try:
        return zlib.decompress(data)
    except zlib.error as error:
        raise Untrusted(f"it cannot be read ({error})") from error


def split(blob: bytes) -> list[bytes]:
    """Bytes in pieces that etcd takes."""
    pieces = [blob[at : at + LARGEST] for at in range(0, len(blob), LARGEST)]
    return [*(MORE + piece for piece in pieces[:-1]), LAST + pieces[-1]]


def joined(found: Iterable[bytes]) -> Iterator[bytes]:
    """What was split, put together again."""
    pieces: list[bytes] = []
    for entry in found:
        pieces.append(entry[1:])
        if entry[:1] != MORE:
            yield b"".join(pieces)
            pieces = []


class Joiner:
    """Puts batches together from the entries of the log, in order, and checks that none is missing or changed."""

    def __init__(self, number: int, chain: int) -> None:
        self.number, self.chain = number, chain
        """The last entry of the last whole batch, and the checksum up to it."""
        self._pieces: list[bytes] = []

    def forget_unfinished(self) -> None:
        """The pieces of a batch that its leader did not live to finish are void."""
        self._pieces = []

    @property
    def next(self) -> int:
        """The number of the entry that has to come now."""
        return self.number + len(self._pieces) + 1

    def take(self, number: int, entry: bytes) -> Iterator[Batch]:
        """One more entry; the batch, if it is the last of one. Untrusted if it is not what has to come."""
        if number != self.next:
            raise Untrusted(f"its log has entry {number}, where {self.next} should be")
        pieces = [*self._pieces, entry[1:]]
        if entry[:1] == MORE:
            self._pieces = pieces
            return
        batch = codec.read_batch(unpacked(b"".join(pieces)), number, self.chain)
        self._pieces = []
        self.number, self.chain = number, batch.sum
        yield batch
