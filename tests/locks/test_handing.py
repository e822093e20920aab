"""Adopting what was handed over."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast.locks.acquire import keep


def test_an_adoption_that_is_interrupted_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: Any) -> None:
        keep(*args)
        raise KeyboardInterrupt

    with holdfast.connect("memory://adopted") as sender, holdfast.connect("memory://adopted") as receiver:
        sent = sender.lock("k").acquire()
        text = sent.hand_over()
        monkeypatch.setattr("holdfast.locks.handing.keep", interrupted)
        with pytest.raises(KeyboardInterrupt):
            receiver.adopt(text)

        assert receiver.list() == []
        assert sent.lost.wait(10.0)


def test_an_adoption_that_is_interrupted_on_its_way_back_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with holdfast.connect("memory://way-back") as sender, holdfast.connect("memory://way-back") as receiver:
        sent = sender.lock("k").acquire()
        text = sent.hand_over()
        monkeypatch.setattr("holdfast.api.blocking.client.Grant", interrupted)
        with pytest.raises(KeyboardInterrupt):
            receiver.adopt(text)

        assert receiver.list() == []
        assert sent.lost.wait(10.0)
