"""What the child processes of these tests do."""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import holdfast
from holdfast.runtime import clock
from tests.faults.child import tell

STEPS = (
    "cell_get 1", "enter 1", "cell_get 2", "cell_set 1", "work begins", "work ends", "cell_set 2", "release 1",
)  # fmt: skip
"""All that a first `once` does, in order."""


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Steps:
    """Calls something at one step of a client's work: when the engine has done it, or `before` it is asked to."""

    def __init__(self, locks: holdfast.Client, at: str, then: Callable[[], None]) -> None:
        self.at, self.then = at, then
        self.done: dict[str, int] = {}
        verbs = locks._core.verbs
        for verb in ("cell_get", "cell_set", "enter", "release"):
            setattr(verbs, verb, self.watched(verb, getattr(verbs, verb)))

    def watched(self, verb: str, call: Callable[..., Any]) -> Callable[..., Any]:
        async def watched(*args: Any) -> Any:
            self.done[verb] = self.done.get(verb, 0) + 1
            came = clock.now()
            self.reach(f"before {verb} {self.done[verb]}")
            # Whoever was stopped here had not begun yet to wait for an answer.
            reply = await call(*args[:-1], args[-1] + clock.now() - came)
            self.reach(f"{verb} {self.done[verb]}")
            return reply

        return watched

    def reach(self, step: str) -> None:
        if step == self.at:
            self.then()


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def work_once(url: str, ttl: float, step: str, then: str = "die") -> None:
    """Do work under a key, and die or stop at one step of it."""
    locks = holdfast.connect(url, ttl=ttl)
    locks.lock("warm").acquire().release()
    steps = Steps(locks, step, {"die": die, "stop": stop}[then])

    def work(grant: holdfast.Grant) -> Any:
        tell({"token": grant.token})
        steps.reach("work begins")
        steps.reach("work ends")
        return ["child", grant.token]

    tell({"result": locks.once("k").run(work)})


def work_slowly(url: str, ttl: float, recorded: bool) -> None:
    """Do work that is stopped half-way until somebody lets it go on; without `once`, if so told."""
    with holdfast.connect(url, ttl=ttl) as locks:

        def work(grant: holdfast.Grant) -> Any:
            tell({"token": grant.token})
            input()
            return ["late", grant.token]

        if recorded:
            tell({"result": locks.once("k").run(work)})
            return
        grant = locks.lock("k").acquire()
        locks.cell("naive").set(work(grant))
        tell({"result": "written"})


def work_through(url: str, ttl: float, path: str, keys: int) -> None:
    """Ask for the result under one key after another, and write down what came."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def work(key: int, grant: holdfast.Grant) -> Any:
        os.write(file, json.dumps(["began", key, grant.token]).encode() + b"\n")
        return [os.getpid(), grant.token]

    with holdfast.connect(url, ttl=ttl) as locks:
        tell("ready")
        for key in range(keys):
            result = locks.once(f"job/{key}").run(functools.partial(work, key))
            os.write(file, json.dumps(["got", key, result]).encode() + b"\n")
    tell("done")


def share(url: str, ttl: float, port: int, keys: list[str], fenced: bool) -> None:
    """Be a member, and write every key that is ours again and again.

    What was written is a list in Redis, `[key, token, member, time]`, in the order in which it was accepted. A
    line on standard input stops us where it hurts: between the look at who owns a key and the write.
    """
    import redis  # here, because most of the children need none and would import it for longer than they live

    from holdfast.fence import RedisFence

    resource = redis.Redis(port=port)
    append = RedisFence(resource).script("return redis.call('RPUSH', KEYS[1], ARGV[1])")
    stop = threading.Event()
    threading.Thread(target=listen, args=(stop,), daemon=True).start()

    def told(epoch: holdfast.Epoch | None) -> None:
        if epoch is None:
            redis.Redis(port=port).incr("lost")

    with holdfast.connect(url, ttl=ttl) as locks, locks.partition("workers", on_change=told) as workers:
        tell("ready")
        while True:
            for key in workers.mine(keys):
                with suppress(holdfast.NotHeld, holdfast.StaleToken):
                    token = workers.token(key)
                    if stop.is_set():
                        stop.clear()
                        os.kill(os.getpid(), signal.SIGSTOP)
                    entry = json.dumps([key, token, workers.member, time.monotonic()])
                    if not fenced:
                        resource.rpush("written", entry)
                        continue
                    resource.incr("tried")
                    append(token, keys=["written"], args=[entry], resource=key)
            time.sleep(0.1)


def listen(stop: threading.Event) -> None:
    """Set the flag for every line that comes."""
    for _ in sys.stdin:
        stop.set()


def tick(url: str, port: int) -> None:
    """Write down again and again that this machine lets processes run at all, and that the engine answers."""
    import redis

    resource = redis.Redis(port=port)
    with holdfast.connect(url) as locks:
        locks.cell("tick").get()
        tell("ready")
        while True:
            locks.cell("tick").get()
            resource.rpush("ticks", time.monotonic())
            time.sleep(0.05)
