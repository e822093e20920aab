"""A client process of a run: `python -m holdfast.verify.client CONFIG_AS_JSON`.

It does its workloads, each in a thread or task of its own, until its stdin says `finish`. From then
on each has to come through once more; then the client is closed and the process ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import holdfast
from holdfast import aio
from holdfast.errors import EngineUnavailable
from holdfast.runtime import clock
from holdfast.runtime.blocking import run
from holdfast.verify.actor import Actor, do
from holdfast.verify.board import Board
from holdfast.verify.history import Recorder
from holdfast.verify.waiting import Waiting
from holdfast.verify.workloads import find_workload
from holdfast.verify.workloads.workload import Workload


@dataclass(frozen=True)
class Config:
    """What a client process is told at its start."""

    name: str
    place: int
    url: str
    ttl: float
    folder: str
    workloads: tuple[str, ...]
    style: str
    """`blocking` or `asyncio`."""
    seed: int
    namespace: str
    shift: float = 0.0
    """How far its clock is ahead of everybody else's."""
    recorded: bool = True
    """Whether it writes a history: without one, it is the measure of what that costs."""

    def text(self) -> str:
        """The same as one argument."""
        return json.dumps(asdict(self))


def tell(what: str) -> None:
    """Tell the stage something: one line, in one write."""
    os.write(1, f"{what}\n".encode())


_time_of_day = time.time


def jump(seconds: float) -> None:
    """Set this process's time of day so many seconds ahead of the machine's."""
    time.time = lambda: _time_of_day() + seconds


class Company:
    """All workloads of one process, over one Holdfast client."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.finishing = threading.Event()
        self.turns = 0
        self._board = Board(Path(config.folder) / "board", config.place)
        self._recorders: list[Recorder] = []

    def workloads(self, client: Any, sleep: Callable[[float], Any]) -> list[Workload]:
        """One actor for each workload, each with a file of its own."""
        Waiting.watch(client)
        return [find_workload(name)(self._actor(name, client, sleep)) for name in self.config.workloads]

    def _actor(self, workload: str, client: Any, sleep: Callable[[float], Any]) -> Actor:
        config = self.config
        shift = config.shift
        now = (lambda: clock.now() - shift) if shift else clock.now
        folder = Path(config.folder) / workload
        recorder = Recorder(folder, config.name, now) if config.recorded else Silent(folder, config.name, now)
        self._recorders.append(recorder)
        rng = random.Random(f"{config.seed} {config.name} {workload} {os.getpid()}")
        return Actor(client, recorder, rng, config.ttl, sleep, self._board, config.folder, shift)

    async def go(self, workload: Workload) -> None:
        """Turn after turn; the last one comes to its end after `finish` was said."""
        actor = workload.actor
        came_through = False
        while not (self.finishing.is_set() and came_through):
            finishing = self.finishing.is_set()
            try:
                good = await workload.turn()
            except BaseException as error:
                # Whatever it is, it is nothing that a workload expects: the stage reports it.
                text = "".join(traceback.format_exception(error))
                actor.recorder.note("surprise", workload=workload.name, error=repr(error), traceback=text)
                tell("surprise")
                raise
            self.turns += 1
            came_through = finishing and good
            await actor.pause(actor.rng.uniform(0.0, 0.02) if good else actor.rng.uniform(0.0, 0.2))

    def listen(self) -> None:
        """Hear what the stage says. A stage that is gone wants nothing more."""
        for line in sys.stdin:
            if line.strip() == "finish":
                self.finishing.set()
            elif line.strip() == "count":
                tell(f"count {self.turns}")
            elif line.startswith("jump "):
                jump(float(line.split()[1]))
        if not self.finishing.is_set():
            os._exit(0)

    def close(self) -> None:
        for recorder in self._recorders:
            recorder.close()


class Silent(Recorder):
    """Records nothing: what a run costs is measured against it."""

    def write(self, record: object) -> None:
        return


def main_blocking(config: Config, company: Company) -> None:
    """Each workload in a thread."""
    client = holdfast.connect(config.url, ttl=config.ttl, namespace=config.namespace, app=config.name)
    threads = [
        threading.Thread(target=run, args=(company.go(workload),), name=workload.name)
        for workload in company.workloads(client, time.sleep)
    ]
    for thread in threads:
        thread.start()
    tell(f"ready {os.getpid()}")
    for thread in threads:
        thread.join()
    run(close(client))


async def main_asyncio(config: Config, company: Company) -> None:
    """Each workload in a task."""
    client = await aio.connect(config.url, ttl=config.ttl, namespace=config.namespace, app=config.name)
    tell(f"ready {os.getpid()}")
    async with asyncio.TaskGroup() as group:
        for workload in company.workloads(client, asyncio.sleep):
            group.create_task(company.go(workload), name=workload.name)
    await close(client)


async def close(client: Any) -> None:
    """End the session. If the engine cannot be told, it ends by itself."""
    try:
        await do(client.close())
    except EngineUnavailable as error:
        print(f"the session could not be ended: {error}", file=sys.stderr)


def main(text: str) -> None:
    """Run until it is told to finish, and has."""
    told = json.loads(text)
    config = Config(**{**told, "workloads": tuple(told["workloads"])})
    company = Company(config)
    threading.Thread(target=company.listen, daemon=True).start()
    if config.style == "asyncio":
        asyncio.run(main_asyncio(config, company))
    else:
        main_blocking(config, company)
    company.close()
    tell("done")


if __name__ == "__main__":
    main(sys.argv[1])
