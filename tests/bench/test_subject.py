"""Finding a peer."""

from __future__ import annotations

import sys

import pytest

from holdfast.bench import subject
from holdfast.bench.subject import Where
from holdfast.errors import InvalidRequest

WHERE = Where("memory://", "", "bench", 10.0)


def test_another_process_makes_the_same_subject_from_its_description() -> None:
    described = subject.as_data(subject.find("filelock", WHERE))

    again = subject.from_data(described)

    assert (again.name, again.where) == ("filelock", WHERE)


def test_an_unknown_peer_names_those_that_are_known() -> None:
    with pytest.raises(InvalidRequest, match=r"known: .*filelock"):
        subject.find("floppylock", WHERE)


def test_a_peer_that_is_not_installed_says_which_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "holdfast.bench.peers.filelock", raising=False)
    monkeypatch.setitem(sys.modules, "filelock", None)

    with pytest.raises(InvalidRequest, match=r"pip install 'holdfast\[bench\]'"):
        subject.find("filelock", WHERE)
