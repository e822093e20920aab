"""A program that blocks pays for nothing that only tasks need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
import holdfast
with holdfast.connect(sys.argv[1]) as locks, locks.lock("k"):
    print("asyncio" in sys.modules)
"""


def test_a_program_that_blocks_does_not_read_asyncio(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, f"sqlite:///{tmp_path}/locks.db"]

    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "False\n"


def test_a_task_that_blocks_is_an_owner_of_its_own(tmp_path: Path) -> None:
    program = """
import asyncio, sys
import holdfast
async def main():
    with holdfast.connect(sys.argv[1]) as locks, locks.lock("k") as grant:
        return grant.owner.rpartition("/")[2][0]
print(asyncio.run(main()))
"""
    command = [sys.executable, "-c", program, f"sqlite:///{tmp_path}/locks.db"]

    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "a\n"
