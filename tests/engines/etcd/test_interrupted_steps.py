"""asyncio: an exception of a signal handler at any moment of a step leaves room for the next steps."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from types import FrameType

import pytest

from holdfast import HoldfastError, aio
from holdfast.engines.etcd.batch import EtcdAsyncioPort, go_on
from holdfast.engines.etcd.sockets import Arrival
from holdfast.verify.servers.etcd import EtcdServer
from tests.faults.injection import NEVER_RAN, Injected, Moments

WAIT = 1.0
TASKS = 5
MOMENTS = 24
"""Each step has a few."""
STEP = {each.__code__ for each in (EtcdAsyncioPort._step, EtcdAsyncioPort._flush, go_on, Arrival.come)}

pytestmark = [
    pytest.mark.usefixtures("garbage_is_collected"),
    pytest.mark.filterwarnings(
        NEVER_RAN,
        "ignore:.* was neither released nor lost:ResourceWarning",
        # A connection that was just being opened.
        "ignore:unclosed:ResourceWarning",
        "ignore:Exception ignored:pytest.PytestUnraisableExceptionWarning",
    ),
]


class StepMoments(Moments):
    """Those of the functions that carry out a step."""

    def _event(self, frame: FrameType, event: str, argument: object) -> None:
        if frame.f_code in STEP:
            super()._event(frame, event, argument)


async def take_some(locks: aio.Client, name: str) -> None:
    async def one(mine: str) -> None:
        async with locks.lock(mine, wait=WAIT):
            await asyncio.sleep(0)

    await asyncio.gather(*(one(f"{name}.{number}") for number in range(TASKS)), return_exceptions=True)


async def struck(locks: aio.Client, at: int) -> bool:
    """Take locks, interrupted at this moment of their steps; whether there was one."""
    moments = StepMoments(at, Injected)
    sys.setprofile(moments._hook)
    try:
        with suppress(Injected):
            await take_some(locks, f"k{at}")
    finally:
        sys.setprofile(None)
    return bool(moments.where)


async def test_a_step_that_is_interrupted_leaves_room_for_the_next_one(server: EtcdServer, namespace: str) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    async with aio.connect(server.url, namespace=namespace) as locks:
        await take_some(locks, "warm")
        for at in range(MOMENTS):
            assert await struck(locks, at), "no such moment"
            with suppress(HoldfastError):
                async with locks.lock("after", wait=WAIT) as grant:
                    assert grant.valid
                    continue
            raise AssertionError(f"no request is answered after an interrupt at moment {at}")
