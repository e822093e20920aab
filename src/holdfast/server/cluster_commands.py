"""HF.CLUSTER."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast.server import grammar
from holdfast.server.frames import Frame
from holdfast.server.wire_error import WireError

if TYPE_CHECKING:
    from holdfast.server.connection import Connection


def cluster(connection: Connection, frame: Frame) -> None:
    """HF.CLUSTER."""
    grammar.expect(frame, 1, 1)
    node = connection.service.node
    if node is None:
        raise WireError("ERR", "this server is not one of several: its store is not etcd")
    connection.hold()

    def answer(done: asyncio.Task[bytes]) -> None:
        if done.cancelled() or connection.closing or connection.service.stopping:
            return
        problem = done.exception()
        connection.answer(
            connection.resp.encode(done.result())
            if problem is None
            else connection.error(WireError("ERR", f"etcd is out of reach: {problem}"))
        )

    connection.service.loop.create_task(node.status()).add_done_callback(answer)


COMMANDS = {b"HF.CLUSTER": cluster}
