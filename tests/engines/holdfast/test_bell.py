"""The keeper's own connection, while the server comes and goes."""

from __future__ import annotations

from typing import Any

import holdfast
from holdfast.engines.holdfast.words import Request
from tests.faults.children import eventually
from tests.servers.lock_server import LockServer


def test_a_server_that_says_goodbye_to_whoever_has_just_come_back_is_asked_again(server: LockServer) -> None:
    """It may have been told to stop at that moment: the goodbye comes together with the answer."""
    with holdfast.connect(server.url, ttl=60.0) as locks:
        held = locks.lock("k").acquire()
        engine: Any = locks._core.engine
        keeper = next(port for port in engine._ports if "SIDE" in port.role)
        eventually(lambda: keeper.link is not None and keeper.link.session is not None, "the keeper is not connected")
        first = keeper.link
        answers: list[object] = []
        call = keeper.wire.call

        async def answered_with_a_goodbye(link: Any, request: Request, until: float) -> Any:
            reply = await call(link, request, until)
            if b"HF.RESUME" in request.packed and not answers:
                answers.append(reply)
                engine.desk.hear([b"hf.bye", b"stopping"])
            return reply

        keeper.wire.call = answered_with_a_goodbye
        first.end("a test")
        eventually(lambda: bool(answers), "the keeper has not come back")
        eventually(
            lambda: keeper.link is not None and keeper.link is not first and keeper.link.session is not None,
            "the keeper has not come back after the goodbye",
        )

        assert held.valid
        held.release()
