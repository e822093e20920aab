"""Transactions are put together as bytes: what they say is what protobuf reads in them."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.engines.etcd import steps
from holdfast.engines.etcd.messages import message

Compare, Op, Txn = message("Compare"), message("RequestOp"), message("TxnRequest")
Range, Put, Delete = message("RangeRequest"), message("PutRequest"), message("DeleteRequest")

KEY, LONG = b"/k/", b"x" * 20_000
LARGE = 2**47 + 5


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (steps.absent(KEY), Compare(target=1, key=KEY, create_revision=0)),
        (steps.empty(KEY), Compare(target=1, key=KEY, create_revision=0, range_end=b"/k0")),
        (steps.empty(KEY, b"/z"), Compare(target=1, key=KEY, create_revision=0, range_end=b"/z")),
        (steps.created_at(KEY, LARGE), Compare(target=1, key=KEY, create_revision=LARGE)),
        (steps.none_before(KEY, 300), Compare(result=1, target=1, key=KEY, create_revision=299, range_end=b"/k0")),
        (steps.unchanged(KEY, 128), Compare(target=2, key=KEY, mod_revision=128)),
        (steps.unchanged(KEY, -7), Compare(target=2, key=KEY, mod_revision=-7)),
        (steps.under(KEY, LARGE), Compare(target=4, key=KEY, lease=LARGE)),
    ],
)
def test_a_comparison_says_what_is_meant(said: bytes, meant: Any) -> None:
    assert Compare.FromString(said) == meant


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (steps.put(KEY, b""), Op(request_put=Put(key=KEY))),
        (steps.put(KEY, b"v" * 200), Op(request_put=Put(key=KEY, value=b"v" * 200))),
        (steps.put(KEY, LONG, LARGE), Op(request_put=Put(key=KEY, value=LONG, lease=LARGE))),
        (steps.delete(KEY), Op(request_delete_range=Delete(key=KEY))),
        (steps.delete_range(KEY, b"/z"), Op(request_delete_range=Delete(key=KEY, range_end=b"/z"))),
        (steps.get(KEY), Op(request_range=Range(key=KEY))),
        (steps.get_all(KEY), Op(request_range=Range(key=KEY, range_end=b"/k0"))),
        (steps.get_all(KEY, 16), Op(request_range=Range(key=KEY, range_end=b"/k0", limit=16))),
        (
            steps.latest(KEY, 2),
            Op(request_range=Range(key=KEY, range_end=b"/k0", limit=2, sort_order=2, sort_target=2)),
        ),
        (
            steps.latest(KEY, 1, before=500),
            Op(
                request_range=Range(
                    key=KEY, range_end=b"/k0", limit=1, sort_order=2, sort_target=2, max_create_revision=499
                )
            ),
        ),
        (
            steps.inner([steps.absent(KEY)], [steps.get(KEY)]),
            Op(
                request_txn=Txn(
                    compare=[Compare(target=1, key=KEY, create_revision=0)], success=[Op(request_range=Range(key=KEY))]
                )
            ),
        ),
    ],
)
def test_an_operation_says_what_is_meant(said: bytes, meant: Any) -> None:
    assert Op.FromString(said) == meant


def test_a_step_has_its_comparisons_and_both_ways_in_order() -> None:
    request = steps.step(
        [steps.absent(KEY), steps.absent(b"b")], [steps.delete(KEY)], [steps.get(b"b"), steps.get(KEY)]
    )
    found = Txn.FromString(request.message)

    assert [each.key for each in found.compare] == [KEY, b"b"]
    assert [each.request_delete_range.key for each in found.success] == [KEY]
    assert [each.request_range.key for each in found.failure] == [b"b", KEY]


def test_several_steps_as_one_are_transactions_inside_it() -> None:
    requests = [steps.step([steps.absent(key)], [steps.put(key, LONG)]) for key in (b"a", b"b")]
    found = Txn.FromString(steps.all_of(requests).message)

    assert [each.request_txn.SerializeToString() for each in found.success] == [each.message for each in requests]
