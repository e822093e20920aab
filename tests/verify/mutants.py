"""Engines that break one promise each, and keep the others: the verifier has to catch every one."""

from __future__ import annotations

import asyncio
import copy
from dataclasses import replace
from hashlib import sha1
from typing import Any

from holdfast.core.table.commands import Renewed, SessionOver
from holdfast.core.table.rows import Session
from holdfast.core.urls import Url
from holdfast.engines.redis.engine import RedisEngine
from holdfast.engines.redis.verbs import RedisVerbs
from holdfast.engines.resp.wire import Form, Script
from holdfast.engines.sqlite.engine import SqliteEngine
from holdfast.engines.table_verbs import TableVerbs
from holdfast.model import Claim, Gone, Place, Refused


class SpoiltVerbs(TableVerbs):
    """The verbs of the embedded engine, one of which is going to be wrong."""


class Spoilt(SqliteEngine):
    """The embedded engine with other verbs."""

    verbs: type[SpoiltVerbs]

    def blocking(self) -> TableVerbs:
        made = super().blocking()
        return self.verbs(made.io, made.bell)

    def asyncio(self, loop: asyncio.AbstractEventLoop) -> TableVerbs:
        made = super().asyncio(loop)
        return self.verbs(made.io, made.bell)


class ReleasesAnyone(SpoiltVerbs):
    """Gives back by name, without a look at who holds it: the first holder there is loses its permit."""

    async def release(self, claim: Claim, until: float) -> Any:
        info = await self.inspect(claim.kind, claim.name, until)
        if info.holders and info.holders[0].claim != claim.id:
            other = replace(claim, id=info.holders[0].claim, session=info.holders[0].claim.rpartition("-")[0])
            await self.leave(other, False, until)
        return await super().release(claim, until)


class RenewsTheDead(SpoiltVerbs):
    """Lets its holders believe that they have an hour, and that a session which has ended goes on."""

    async def renew(self, session: str, until: float) -> Any:
        reply = await super().renew(session, until)
        return Renewed(ttl=3600.0, next_death=None if isinstance(reply, SessionOver) else reply.next_death)


class KeepsTheDead(SpoiltVerbs):
    """A session that died in line keeps its place, and is granted the lock when its turn comes."""

    async def open_session(self, session: Session, until: float) -> Any:
        reply = await super().open_session(session._replace(ttl=3600.0, expires_at=session.expires_at + 3600), until)
        reply.ttl = session.ttl
        return reply


class SkipsTheLine(SpoiltVerbs):
    """Whoever comes at the right moment gets it: there is no line, everybody tries again and again."""

    async def enter(self, claim: Claim, until: float) -> Any:
        reply = await super().enter(replace(claim, waits=False), until)
        return Place(1) if isinstance(reply, Refused) and claim.waits else reply

    async def look(self, claim: Claim, until: float) -> Any:
        reply = await super().look(claim, until)
        return await self.enter(claim, until) if isinstance(reply, Gone) else reply


class ReleasesAnyoneEngine(Spoilt):
    verbs = ReleasesAnyone


class RenewsTheDeadEngine(Spoilt):
    verbs = RenewsTheDead


class KeepsTheDeadEngine(Spoilt):
    verbs = KeepsTheDead


class SkipsTheLineEngine(Spoilt):
    verbs = SkipsTheLine


class ForgetfulEngine(RedisEngine):
    """Counts its tokens from one, whatever the time is: a Redis that was restarted empty counts anew."""

    def __init__(self, url: Url, namespace: str) -> None:
        super().__init__(replace(url, scheme="redis"), namespace)

    def blocking(self) -> RedisVerbs:
        return counting_from_one(super().blocking())

    def asyncio(self, loop: asyncio.AbstractEventLoop) -> RedisVerbs:
        return counting_from_one(super().asyncio(loop))


def counting_from_one(verbs: RedisVerbs) -> RedisVerbs:
    verbs._forms = {name: without_clock(form) for name, form in verbs._forms.items()}
    verbs._entering, verbs._releasing = without_clock(verbs._entering), without_clock(verbs._releasing)
    return verbs


def without_clock(form: Form) -> Form:
    joins = None if form.joins is None else replace(form.joins, script=timeless(form.joins.script))
    return replace(form, script=timeless(form.script), joins=joins)


def timeless(script: Script) -> Script:
    changed = copy.copy(script)
    changed.__dict__.pop("start", None)
    # The short ways take their number from the clock alone: none of them is taken.
    changed.text = (
        script.text.replace("+ 1, now_us)", "+ 1, 0)")
        .replace("if ARGV[8] == '0' and call('EXISTS'", "if false and call('EXISTS'")
        .replace("if ARGV[7] == '1' and ARGV[6] == '0'", "if false")
        .replace("row[3] == 'x' and row[13] == 0", "false")
    )
    changed.sha = sha1(changed.text.encode(), usedforsecurity=False).hexdigest()
    return changed


class OddVerbs(SpoiltVerbs):
    """Fails in a way that no API knows."""

    async def cell_set(self, kind: str, name: str, value: bytes | None, *more: Any) -> Any:
        if value is None:
            return await super().cell_set(kind, name, value, *more)
        raise ZeroDivisionError("nobody expects this")


class OddEngine(Spoilt):
    verbs = OddVerbs
