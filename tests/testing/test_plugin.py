"""The pytest plugin, as a user's own test suite meets it."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

DOCS = Path(__file__).parents[2] / "docs"
PLUGINS = ("-p", "no:asyncio", "-p", "no:cacheprovider", "-W", "error")

FENCED = """
import holdfast
from holdfast.testing import assert_fenced

class Store:
    highest = 0
    def write(self, grant):
        if {check}:
            raise holdfast.StaleToken("k", grant.token, self.highest)
        self.highest = grant.token

def test_the_write(rehearsal):
    store = Store()
    with holdfast.connect() as locks:
        grant = locks.lock("k").acquire()
        store.write(rehearsal.take_over("k"))
        assert_fenced(lambda: store.write(grant))
"""


def test_a_users_test_of_a_fenced_write_passes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(FENCED.format(check="grant.token < self.highest"))

    pytester.runpytest_subprocess(*PLUGINS).assert_outcomes(passed=1)


def test_a_users_test_of_an_unfenced_write_fails_and_says_why(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(FENCED.format(check="False"))
    result = pytester.runpytest_subprocess(*PLUGINS)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*the resource does not check the token*"])


def test_every_example_of_the_page_runs(pytester: pytest.Pytester) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "testing.md").read_text(), re.DOTALL)
    pytester.makepyfile("\n".join(blocks))
    result = pytester.runpytest_subprocess(*PLUGINS)

    result.assert_outcomes(passed="\n".join(blocks).count("\ndef test_"))


def test_the_plugin_is_installed_under_its_name() -> None:
    assert [point.value for point in entry_points(group="pytest11", name="holdfast")] == ["pytest_holdfast"]


def test_loading_the_plugin_imports_nothing_of_holdfast() -> None:
    look = "import sys, pytest_holdfast; print([name for name in sys.modules if name.partition('.')[0] == 'holdfast'])"
    found = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)

    assert found.stdout.strip() == "[]"
