"""Ctrl-C, at a moment that the test chooses and at a hundred random ones."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

import pytest

import holdfast
from tests.faults.child import tell
from tests.faults.children import Child, eventually

INTERRUPTS = int(os.environ.get("HOLDFAST_INTERRUPTS", "100"))
FIRST_INSTRUCTION = 8
RECIPES = ("/holdfast/locks/acquire.py", "/holdfast/locks/release.py")
LONG_TTL = 600.0
"""Nothing that is left behind goes away by itself while the test runs."""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/locks.db"


@pytest.fixture
def chance() -> random.Random:
    seed = int(os.environ.get("HOLDFAST_SEED", "") or random.SystemRandom().randrange(2**32))
    print(f"HOLDFAST_SEED={seed}")
    return random.Random(seed)


def wait_and_be_interrupted(url: str) -> None:
    """Stand in line until Ctrl-C, then go on with the same client."""
    locks = holdfast.connect(url, ttl=LONG_TTL)
    tell("ready")
    try:
        locks.lock("k").acquire()
    except KeyboardInterrupt:
        tell("interrupted")
    input()
    with locks.lock("k", wait=5.0) as grant:
        tell({"token": grant.token})


def test_ctrl_c_ends_a_wait_and_leaves_no_place_behind(url: str) -> None:
    with holdfast.connect(url) as locks, ExitStack() as stack:
        held = locks.lock("k").acquire()
        child = stack.enter_context(Child("tests.process.test_interrupt:wait_and_be_interrupted", url))
        child.expect("ready")
        eventually(lambda: locks.inspect("k").waiters, "it did not get in line")
        began = time.monotonic()
        child.interrupt()
        child.expect("interrupted")
        assert time.monotonic() - began < 1.0
        assert locks.inspect("k").waiters == ()
        assert held.valid
        held.release()
        child.ask()
        assert child.hear()["token"] > held.token
        assert child.ended() == 0, child.complaints


def in_recipe(frame: FrameType) -> bool:
    """Whether a recipe of Holdfast is running: the interrupted function, or one that called it.

    Its very first instruction is not: nothing that Python code can do makes a `with` safe there.
    """
    if frame.f_lasti <= FIRST_INSTRUCTION:
        return False
    found: FrameType | None = frame
    while found is not None and "/holdfast/api/" not in found.f_code.co_filename:
        if found.f_code.co_filename.endswith(RECIPES):
            return True
        found = found.f_back
    return False


def be_interrupted_again_and_again(url: str, names: list[str]) -> None:
    """Take and give back until interrupted; tell; begin again."""
    locks = holdfast.connect(url, ttl=LONG_TTL)
    taken = [locks.lock(name) for name in names]
    armed = False

    def interrupt(_: int, frame: FrameType | None) -> None:
        nonlocal armed
        # Once: a second Ctrl-C while the first is being dealt with may cut that short.
        # Not between Holdfast's return and the caller's taking what it returned: nobody can help there.
        if armed and frame is not None and in_recipe(frame):
            armed = False
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    tell("ready")
    for line in sys.stdin:
        tell(line.strip())
        try:
            while True:
                armed = True  # again, should Python have swallowed the last one in a `__del__`
                for lock in taken:
                    with lock:
                        pass
        except KeyboardInterrupt:
            tell("interrupted")
        except holdfast.Deadlock as error:
            tell(str(error))
            return


def interrupt_until_told(child: Child) -> None:
    """Interrupt it; again if that fell on a moment outside of Holdfast."""

    def told() -> bool:
        child.interrupt()
        time.sleep(0.001)
        return not child.tells_nothing()

    eventually(told, "it cannot be interrupted")
    child.expect("interrupted")


@pytest.mark.parametrize("rivals", [1, 2])
def test_ctrl_c_at_any_moment_leaves_nothing_behind(url: str, chance: random.Random, rivals: int) -> None:
    with holdfast.connect(url) as locks, ExitStack() as stack:
        program = "tests.process.test_interrupt:be_interrupted_again_and_again"
        children = [stack.enter_context(Child(program, url, ["a", "b"])) for _ in range(rivals)]
        for child in children:
            child.expect("ready")
        for number in range(INTERRUPTS // rivals):
            for child in children:
                child.ask(str(number))
                child.expect(str(number))
            for child in children:
                time.sleep(chance.uniform(0.0, 0.005))  # the moment is what is random here
                interrupt_until_told(child)
            eventually(lambda: locks.list() == [], f"after interrupt {number} something is left: {locks.list()}", 3.0)
