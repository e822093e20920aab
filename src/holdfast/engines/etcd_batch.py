"""Calls of tasks: transactions of many tasks travel together.

What comes while calls are under way goes into the next one, as transactions inside a
transaction: the cluster decides on all of them in one step, and writes them once. All parts of
such a step are compared with the state before it, and what they write has one revision. So a
step takes at most one part for each line: two claims on one name would have no order.
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from holdfast.engines.etcd_messages import message
from holdfast.engines.etcd_wire import TXN, Answer, Attempts, Endpoint, Request, Wire
from holdfast.errors import EngineUnavailable
from holdfast.runtime import clock
from holdfast.runtime.asyncio import call_in_loop

AT_ONCE = 2
"""How many steps may be under way: enough to keep the cluster busy, few enough to gather something."""
MOST_PARTS = 48
"""etcd takes 128 operations in a transaction, those inside others included."""

_Txn, _Op = message("TxnRequest"), message("RequestOp")


class Part:
    """One task's transaction, on its way."""

    __slots__ = ("answered", "request", "until")

    def __init__(self, request: Request, until: float, answered: asyncio.Future[Answer]) -> None:
        self.request, self.until, self.answered = request, until, answered


class EtcdAsyncioPort:
    """Calls that tasks of one loop await."""

    def __init__(self, wire: Wire, loop: asyncio.AbstractEventLoop) -> None:
        self.wire, self.loop = wire, loop
        self._waiting: list[Part] = []
        self._steps: set[asyncio.Task[None]] = set()
        self._flush_due = False

    async def call(self, request: Request, until: float) -> Answer:
        if request.together is None:
            return await self._attempt(request, until)
        part = Part(request, until, self.loop.create_future())
        self._waiting.append(part)
        if len(self._steps) < AT_ONCE and not self._flush_due:
            # After the tasks that are ready now have said what they want.
            self._flush_due = True
            self.loop.call_soon(self._flush)
        timer = self.loop.call_later(max(0.0, until - clock.now()) + 0.05, self._give_up, part)
        try:
            return await part.answered
        finally:
            timer.cancel()
            if part in self._waiting:
                self._waiting.remove(part)

    def _give_up(self, part: Part) -> None:
        """Its step may take longer than this part has time."""
        if not part.answered.done():
            sent = part not in self._waiting
            problem = "etcd did not answer in time"
            outcome: Any = "unknown" if sent else "not done"
            part.answered.set_exception(EngineUnavailable(self.wire.address.shown, problem, outcome))

    def _flush(self) -> None:
        self._flush_due = False
        while self._waiting and len(self._steps) < AT_ONCE:
            parts = self._gather()
            step = self.loop.create_task(self._send(parts))
            self._steps.add(step)
            step.add_done_callback(self._stepped)

    def _gather(self) -> list[Part]:
        """Parts for one step: one for each line, the earliest first."""
        chosen: dict[str | None, Part] = {}
        left: list[Part] = []
        for part in self._waiting:
            if len(chosen) < MOST_PARTS and part.request.together not in chosen:
                chosen[part.request.together] = part
            else:
                left.append(part)
        self._waiting = left
        return list(chosen.values())

    def _stepped(self, step: asyncio.Task[None]) -> None:
        self._steps.discard(step)
        self._flush()

    async def _send(self, parts: list[Part]) -> None:
        until = max(part.until for part in parts)
        try:
            if len(parts) == 1:
                answers = [await self._attempt(parts[0].request, until)]
            else:
                answers = await self._together(parts, until)
        except Exception as error:  # noqa: BLE001 - whoever asked gets it
            for part in parts:
                if not part.answered.done():
                    part.answered.set_exception(error)
            return
        for part, answer in zip(parts, answers, strict=True):
            if not part.answered.done():
                part.answered.set_result(answer)

    async def _together(self, parts: list[Part], until: float) -> list[Answer]:
        ops = [_Op(request_txn=part.request.message) for part in parts]
        whole = await self._attempt(Request(TXN, _Txn(success=ops)), until)
        return [
            Answer(each.response_txn, whole.revision, whole.term, whole.repeated) for each in whole.message.responses
        ]

    async def _attempt(self, request: Request, until: float) -> Answer:
        attempts = Attempts(self.wire, request, until)
        while True:
            endpoint, limit = attempts.next()
            try:
                reply = await self._once(endpoint, request, limit)
            except (grpc.RpcError, ValueError) as error:
                pause = attempts.failed(error)
                if pause:
                    await asyncio.sleep(pause)
                continue
            return attempts.done(reply)

    async def _once(self, endpoint: Endpoint, request: Request, limit: float) -> Any:
        if self.wire.address.user:
            # Signing in takes a password hash of a tenth of a second.
            metadata = await self.loop.run_in_executor(None, self.wire.metadata, limit)
        else:
            metadata = ()
        answered: asyncio.Future[Any] = self.loop.create_future()
        call = endpoint.method(request.method).future(request.message, timeout=limit, metadata=metadata)

        def settle() -> None:
            if answered.done():
                return
            error = call.exception() if not call.cancelled() else None
            if error is not None:
                answered.set_exception(error)
            elif call.cancelled():
                answered.set_exception(ValueError("the channel was closed"))
            else:
                answered.set_result(call.result())

        call.add_done_callback(lambda _: call_in_loop(self.loop, settle))
        return await answered
