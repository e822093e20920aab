"""What came of a request, and who is told."""

from __future__ import annotations

import pytest
from kazoo.exceptions import NoNodeError

from holdfast.engines.zookeeper.answer import Answer
from holdfast.engines.zookeeper.link import Batch


def test_who_asks_before_and_who_asks_after_is_told_once() -> None:
    told: list[str] = []
    answer = Answer()
    answer.rawlink(lambda _: told.append("before"))
    answer.set("done")
    answer.rawlink(lambda _: told.append("after"))

    assert told == ["before", "after"]
    assert answer.get() == "done"


def test_a_refusal_is_raised_where_the_answer_is_taken() -> None:
    answer = Answer()
    answer.set_exception(NoNodeError())

    assert answer.ready()
    with pytest.raises(NoNodeError):
        answer.get()


def test_a_batch_is_done_with_its_last_answer_although_another_asked_for_the_first() -> None:
    done: list[str] = []
    first, last = Answer(), Answer()
    Batch([first, last], lambda: done.append("batch"))
    first.set()
    first.rawlink(lambda _: None)
    assert done == []
    last.set()
    assert done == ["batch"]
