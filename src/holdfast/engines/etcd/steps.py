"""Transactions, in few words: what is compared, what is read and written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.engines.etcd.keys import end_of
from holdfast.engines.etcd.messages import message
from holdfast.engines.etcd.wire import TXN, Request

_Compare, _Op, _Txn = message("Compare"), message("RequestOp"), message("TxnRequest")
_Range, _Put, _Delete = message("RangeRequest"), message("PutRequest"), message("DeleteRequest")

_EQUAL, _GREATER = 0, 1
_CREATE, _MOD, _LEASE = 1, 2, 4
_DESCEND, _BY_CREATE = 2, 2


def absent(key: bytes) -> Any:
    """There is no such key."""
    return _Compare(result=_EQUAL, target=_CREATE, key=key, create_revision=0)


def empty(start: bytes, end: bytes | None = None) -> Any:
    """No key starts so (or lies in this range)."""
    return _Compare(result=_EQUAL, target=_CREATE, key=start, range_end=end or end_of(start), create_revision=0)


def created_at(key: bytes, revision: int) -> Any:
    """The key is there, and is the one that was created then."""
    return _Compare(result=_EQUAL, target=_CREATE, key=key, create_revision=revision)


def none_before(start: bytes, revision: int) -> Any:
    """Every key that starts so was created at this revision or later: whoever came then is the head of the line."""
    return _Compare(result=_GREATER, target=_CREATE, key=start, range_end=end_of(start), create_revision=revision - 1)


def unchanged(key: bytes, revision: int) -> Any:
    """The key was last written at this revision."""
    return _Compare(result=_EQUAL, target=_MOD, key=key, mod_revision=revision)


def under(key: bytes, lease: int) -> Any:
    """The key hangs on this lease."""
    return _Compare(result=_EQUAL, target=_LEASE, key=key, lease=lease)


def put(key: bytes, value: bytes, lease: int = 0) -> Any:
    """Write a key."""
    return _Op(request_put=_Put(key=key, value=value, lease=lease))


def delete(key: bytes) -> Any:
    """Remove a key."""
    return _Op(request_delete_range=_Delete(key=key))


def delete_range(start: bytes, end: bytes) -> Any:
    """Remove every key from one up to another."""
    return _Op(request_delete_range=_Delete(key=start, range_end=end))


def get(key: bytes) -> Any:
    """Read a key."""
    return _Op(request_range=_Range(key=key))


def get_range(start: bytes, end: bytes, limit: int = 0) -> Any:
    """Read every key from one up to another."""
    return _Op(request_range=_Range(key=start, range_end=end, limit=limit))


def get_all(start: bytes, limit: int = 0) -> Any:
    """Read every key that starts so."""
    return get_range(start, end_of(start), limit)


def latest(start: bytes, limit: int, before: int = 0) -> Any:
    """Of the keys that start so, the last that came (before a revision), latest first."""
    return _Op(
        request_range=_Range(
            key=start,
            range_end=end_of(start),
            limit=limit,
            sort_order=_DESCEND,
            sort_target=_BY_CREATE,
            max_create_revision=before - 1 if before else 0,
        )
    )


def inner(compare: Sequence[Any], then: Sequence[Any], otherwise: Sequence[Any] = ()) -> Any:
    """A transaction inside a transaction. What it compares is the state before the whole of it."""
    return _Op(request_txn=_Txn(compare=compare, success=then, failure=otherwise))


def step(
    compare: Sequence[Any],
    then: Sequence[Any],
    otherwise: Sequence[Any] = (),
    *,
    together: str | None = None,
    repeats: bool = True,
) -> Request:
    """One transaction, to be sent."""
    return Request(TXN, _Txn(compare=compare, success=then, failure=otherwise), repeats, together)


def kvs(response: Any) -> Any:
    """What a read in a transaction found."""
    return response.response_range.kvs
