"""Where a namespace's tokens start.

A token is a revision of etcd plus the base of its namespace, which is the time of its creation
in µs: a new namespace, or a new cluster, never gives lower tokens than an old one did. A cluster
that was restored from a backup does; then the base is raised.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from holdfast.core.table.commands import Done
from holdfast.core.table.rows import Session
from holdfast.engines.etcd import steps
from holdfast.engines.etcd.keys import LAYOUT, lease_of
from holdfast.errors import EngineFailure

if TYPE_CHECKING:
    from holdfast.engines.etcd.outcome import VerbCall
    from holdfast.engines.etcd.session import Known


def _pack(base: int) -> bytes:
    return json.dumps({"layout": LAYOUT, "base": base}).encode()


def _unpack(known: Known, kv: Any) -> int:
    kept = json.loads(kv.value)
    if kept["layout"] > LAYOUT:
        problem = f"the namespace has layout {kept['layout']}, this version of Holdfast knows {LAYOUT}: upgrade it"
        raise EngineFailure(known.shared.address, problem, "not done")
    return int(kept["base"])


async def read_base(known: Known, session: Session | None, verb: VerbCall) -> tuple[int, int, int]:
    """The base, its revision and the revision of this read; it is made if there is none.

    A session is registered in the same step: while one is, the base does not change.
    """
    key = known.keys.base
    register = []
    if session is not None:
        who = {"app": session.app, "host": session.host, "pid": session.pid, "ttl": session.ttl}
        own = known.keys.session(session.id)
        register = [steps.put(own, json.dumps(who).encode(), lease_of(session.id))]
    first = int(time.time() * 1_000_000)
    step = steps.step(
        [steps.absent(key)],
        [steps.put(key, _pack(first)), *register],
        [steps.get(key), *register],
        # A base without a session is the same, whichever client writes it.
        changes=session is not None,
    )
    answer = await known.call(step, verb)
    if answer.message.succeeded:
        return first, answer.revision, answer.revision
    kv = steps.kvs(answer.message.responses[0])[0]
    return _unpack(known, kv), kv.mod_revision, answer.revision


async def raise_base(known: Known, above: int, verb: VerbCall) -> Done:
    """Make every later token larger than `above`; refused while a session is open that knows the base already."""
    while True:
        base, modified, _ = await read_base(known, None, verb)
        if base >= above:
            return Done()
        answer = await known.call(
            steps.step(
                [steps.unchanged(known.keys.base, modified), steps.empty(known.keys.sessions)],
                [steps.put(known.keys.base, _pack(above))],
                [steps.get(known.keys.base), steps.get_all(known.keys.sessions)],
            ),
            verb,
        )
        if answer.message.succeeded:
            return Done()
        kept, sessions = (steps.kvs(response) for response in answer.message.responses)
        if sessions and kept[0].mod_revision == modified:
            problem = f"tokens cannot be raised while clients are connected ({len(sessions)}): close them first"
            raise EngineFailure(known.shared.address, problem, "not done")
