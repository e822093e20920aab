"""Transactions, in few words: what is compared, what is read and written.

Put together as bytes, as protobuf would: every acquire and release builds one, and building them
as messages took half as long again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from holdfast.engines.etcd.keys import end_of
from holdfast.engines.etcd.messages import message
from holdfast.engines.etcd.wire import RANGE, TXN, Request

_RangeRequest = message("RangeRequest")

# A field is its tag, then a number, or a length and so many bytes. What is 0 is left out.
_COMPARE, _THEN, _OTHERWISE = b"\x0a", b"\x12", b"\x1a"
_RANGE, _PUT, _DELETE, _TXN = b"\x0a", b"\x12", b"\x1a", b"\x22"
_KEY, _END, _VALUE, _LEASE = b"\x0a", b"\x12", b"\x12", b"\x18"
_LIMIT, _LATEST_FIRST, _MOST_CREATED = b"\x18", b"\x28\x02\x30\x02", b"\x68"
# Of a comparison: is a key's creation, its last write or its lease equal to (or greater than) a number, or its value?
_IF_CREATED, _IF_LATER, _IF_MODIFIED, _IF_LEASE = b"\x10\x01", b"\x08\x01\x10\x01", b"\x10\x02", b"\x10\x04"
_IF_VALUE, _UNLESS_CREATED = b"\x10\x03", b"\x08\x03\x10\x01"
_IF_KEY, _IF_END = b"\x1a", b"\x82\x04"
_CREATED, _MODIFIED, _HOLDS, _UNDER = b"\x28", b"\x30", b"\x3a", b"\x40"

_SHORT = [bytes([number]) for number in range(128)]


def _number(number: int) -> bytes:
    if 0 <= number < 128:
        return _SHORT[number]
    if 0 <= number < 16384:
        return bytes((number & 127 | 128, number >> 7))
    number &= 2**64 - 1
    found = bytearray()
    while number >= 128:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)


def _field(tag: bytes, data: bytes) -> bytes:
    return tag + _number(len(data)) + data


@lru_cache(16)
def _under_lease(lease: int) -> bytes:
    """A session's lease goes with every write."""
    return _LEASE + _number(lease) if lease else b""


def absent(key: bytes) -> bytes:
    """There is no such key."""
    return created_at(key, 0)


def empty(start: bytes, end: bytes | None = None) -> bytes:
    """No key starts so (or lies in this range)."""
    return _IF_CREATED + _field(_IF_KEY, start) + _CREATED + b"\0" + _field(_IF_END, end or end_of(start))


def created_at(key: bytes, revision: int) -> bytes:
    """The key is there, and is the one that was created then."""
    return _IF_CREATED + _field(_IF_KEY, key) + _CREATED + _number(revision)


def ended(key: bytes, revision: int) -> bytes:
    """The key that was created then is not there any more; another one of its name may be."""
    return _UNLESS_CREATED + _field(_IF_KEY, key) + _CREATED + _number(revision)


def none_before(start: bytes, revision: int) -> bytes:
    """Every key that starts so was created at this revision or later: whoever came then is the head of the line."""
    return _IF_LATER + _field(_IF_KEY, start) + _CREATED + _number(revision - 1) + _field(_IF_END, end_of(start))


def unchanged(key: bytes, revision: int) -> bytes:
    """The key was last written at this revision."""
    return _IF_MODIFIED + _field(_IF_KEY, key) + _MODIFIED + _number(revision)


def holds(key: bytes, value: bytes) -> bytes:
    """The key has this value."""
    return _IF_VALUE + _field(_IF_KEY, key) + _field(_HOLDS, value)


def under(key: bytes, lease: int) -> bytes:
    """The key hangs on this lease."""
    return _IF_LEASE + _field(_IF_KEY, key) + _UNDER + _number(lease)


def put(key: bytes, value: bytes, lease: int = 0) -> bytes:
    """Write a key."""
    return _field(_PUT, _field(_KEY, key) + _field(_VALUE, value) + _under_lease(lease))


def delete(key: bytes) -> bytes:
    """Remove a key."""
    return _field(_DELETE, _field(_KEY, key))


def delete_range(start: bytes, end: bytes) -> bytes:
    """Remove every key from one up to another."""
    return _field(_DELETE, _field(_KEY, start) + _field(_END, end))


def get(key: bytes) -> bytes:
    """Read a key."""
    return _field(_RANGE, _field(_KEY, key))


def get_all(start: bytes, limit: int = 0) -> bytes:
    """Read every key that starts so."""
    return _field(_RANGE, _field(_KEY, start) + _field(_END, end_of(start)) + _LIMIT + _number(limit))


def latest(start: bytes, limit: int, before: int = 0) -> bytes:
    """Of the keys that start so, the last that came (before a revision), latest first."""
    read = _field(_KEY, start) + _field(_END, end_of(start)) + _LIMIT + _number(limit) + _LATEST_FIRST
    return _field(_RANGE, read + _MOST_CREATED + _number(before - 1) if before else read)


def _whole(compare: Sequence[bytes], then: Sequence[bytes], otherwise: Sequence[bytes]) -> bytes:
    fields = [_field(_COMPARE, each) for each in compare]
    fields += [_field(_THEN, each) for each in then]
    fields += [_field(_OTHERWISE, each) for each in otherwise]
    return b"".join(fields)


def inner(compare: Sequence[bytes], then: Sequence[bytes], otherwise: Sequence[bytes] = ()) -> bytes:
    """A transaction inside a transaction. What it compares is the state before the whole of it."""
    return _field(_TXN, _whole(compare, then, otherwise))


def step(
    compare: Sequence[bytes],
    then: Sequence[bytes],
    otherwise: Sequence[bytes] = (),
    *,
    together: str | None = None,
    alike: str = "",
    urgent: bool = False,
    repeats: bool = True,
    changes: bool = True,
) -> Request:
    """One transaction, to be sent. It writes, at least in one case: what only reads is a `look`.

    A transaction that only reads kills an etcd before 3.5.5 if its client goes away in the middle of it (etcd's issue
    14110).
    """
    assert any(each[:1] != _RANGE for each in (*then, *otherwise)), "a transaction that writes nothing"
    return Request(TXN, _whole(compare, then, otherwise), repeats, together, changes, alike, urgent)


def look(start: bytes, end: bytes = b"", *, limit: int = 0, revision: int = 0, keys_only: bool = False) -> Request:
    """A read by itself: of a key, or of every key from one up to another; as of now, through a majority, or earlier."""
    read = _RangeRequest(key=start, range_end=end, limit=limit, revision=revision, keys_only=keys_only)
    return Request(RANGE, read, changes=False)


def all_of(requests: Sequence[Request]) -> Request:
    """Several transactions as one."""
    return step([], [_field(_TXN, request.message) for request in requests])


def innermost(answer: Any) -> Any:
    """What came of the transaction that was carried out at last, where one is the only step of another."""
    while answer.responses and answer.responses[0].HasField("response_txn"):
        answer = answer.responses[0].response_txn
    return answer


def kvs(response: Any) -> Any:
    """What a read in a transaction found."""
    return response.response_range.kvs
