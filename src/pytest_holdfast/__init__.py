"""The pytest plugin of Holdfast: the fixture `rehearsal`.

pytest imports this module at every start, so it imports nothing of Holdfast until a test asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from holdfast.testing import Rehearsal


@pytest.fixture
def rehearsal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rehearsal]:
    """Locks that are lost when the test says so; `holdfast.connect()` without a URL connects to them."""
    from holdfast.testing import Rehearsal

    with Rehearsal() as made:
        monkeypatch.setenv("HOLDFAST_URL", made.url)
        yield made
