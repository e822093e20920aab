"""What every test of this project gets."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_settings_of_this_user(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep tests away from the lock file that the person running them may be using."""
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / "state"))
