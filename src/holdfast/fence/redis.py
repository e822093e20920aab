"""The fence in Redis: a script that checks and writes in one step."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from math import inf
from typing import Any, TypeAlias

from holdfast.errors import EngineUnavailable, InvalidRequest, StaleToken
from holdfast.fence.redis_keys import check_slots, fence_key
from holdfast.fence.settling import settled
from holdfast.fence.token import Presented, Token, present
from holdfast.runtime.blocking import run

Key: TypeAlias = str | bytes
Value: TypeAlias = str | bytes | int | float

_STALE = "HOLDFAST_STALE "
_DONE = "HOLDFAST_DONE"


class Script:
    """A script that checks before it runs, and its digest."""

    def __init__(self, body: str) -> None:
        self.text = _source("redis_check.lua") + body
        self.digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


def _source(name: str) -> str:
    return files("holdfast.fence").joinpath(name).read_text()


def _wrapped(text: str) -> str:
    """A caller's script, which sees only its own keys and arguments."""
    return (
        f"local function body(KEYS, ARGV)\n{text}\nend\n"
        "local keys, args = {}, {}\n"
        "for at = 2, #KEYS do keys[at - 1] = KEYS[at] end\n"
        "for at = 3, #ARGV do args[at - 2] = ARGV[at] end\n"
        "return body(keys, args)\n"
    )


class RedisFence:
    """Refuses, in Redis, a write under a token lower than one it has seen.

    Give a client of redis-py: blocking or asyncio (then every method is awaited), single or cluster.
    The fences are keys without expiry; a server that evicts any key at all (`allkeys-…`) may forget one.
    """

    def __init__(self, client: Any) -> None:
        from redis.exceptions import ConnectionError, NoScriptError, ResponseError, TimeoutError

        if "Pipeline" in type(client).__name__:
            raise InvalidRequest("client", client, "a pipeline would hear of a refusal too late: give its client")
        self._no_script, self._refusal = NoScriptError, ResponseError
        self._no_answer = ConnectionError, TimeoutError
        self._client = client
        self.asynchronous = hasattr(client, "__aenter__")
        self._cluster = hasattr(client, "nodes_manager")
        self._command = Script(_source("redis_command.lua"))

    def set(
        self,
        key: Key,
        value: Value,
        grant: Token,
        *,
        ttl: float | None = None,
        resource: str | None = None,
        once: bool = False,
    ) -> Any:
        """SET, if the token is not stale. `ttl` is the value's, in seconds."""
        if ttl is not None and not 0 < ttl < inf:
            raise InvalidRequest("ttl", ttl, "a value lives for more than 0 seconds, or for ever: None")
        words = ["SET", value] if ttl is None else ["SET", value, "PX", max(1, round(ttl * 1000))]
        return self._start(self._command, present(grant, resource, once=once), once, [key], words)

    def delete(self, key: Key, grant: Token, *, resource: str | None = None, once: bool = False) -> Any:
        """DEL, if the token is not stale. The fence stays."""
        return self.execute("DEL", [key], [], grant, resource=resource, once=once)

    def hset(
        self,
        key: Key,
        fields: Mapping[str, Value],
        grant: Token,
        *,
        resource: str | None = None,
        once: bool = False,
    ) -> Any:
        """HSET of several fields, if the token is not stale."""
        words = [word for pair in fields.items() for word in pair]
        return self.execute("HSET", [key], words, grant, resource=resource, once=once)

    def hdel(
        self, key: Key, fields: Iterable[str], grant: Token, *, resource: str | None = None, once: bool = False
    ) -> Any:
        """HDEL of several fields, if the token is not stale."""
        return self.execute("HDEL", [key], list(fields), grant, resource=resource, once=once)

    def check(self, grant: Token, *, resource: str | None = None, once: bool = False) -> Any:
        """Remember the token, or raise StaleToken, without a write. A later write has to be checked again."""
        return self._start(self._command, present(grant, resource, once=once), once, [], [])

    def execute(
        self,
        command: str,
        keys: Iterable[Key],
        args: Iterable[Value],
        grant: Token,
        *,
        resource: str | None = None,
        once: bool = False,
    ) -> Any:
        """Any one command whose keys come first, if the token is not stale; its reply."""
        return self._start(self._command, present(grant, resource, once=once), once, [*keys], [command, *args])

    def script(self, text: str) -> FencedScript:
        """A Lua script of your own, to be run after the check, in the same step."""
        return FencedScript(self, Script(_wrapped(text)))

    def _start(self, script: Script, presented: Presented, once: bool, keys: list[Key], args: list[Value]) -> Any:
        """Start it: the reply, or for an asyncio client what gives it when awaited."""
        if self._cluster:
            check_slots(presented.resource, keys)
        # redis-py repeats by itself what was not answered: the second time must not be taken for another write.
        kind = f"once {secrets.token_hex(8)}" if once else "shared" if presented.shared else "exclusive"
        words = [fence_key(presented.resource), *keys, presented.token, kind, *args]
        count = len(keys) + 1
        if self.asynchronous:
            return self._run(script, presented, once, count, words)
        # The same as `_run`, without a coroutine: half of what the fence costs would be that.
        with self._outcome(presented, once):
            try:
                return self._client.execute_command("EVALSHA", script.digest, count, *words)
            except self._refusal as error:
                return run(self._explain(error, script, presented, count, words))

    async def _run(self, script: Script, presented: Presented, once: bool, count: int, words: list[Any]) -> Any:
        with self._outcome(presented, once):
            try:
                return await self._client.evalsha(script.digest, count, *words)
            except self._refusal as error:
                return await self._explain(error, script, presented, count, words)

    @contextmanager
    def _outcome(self, presented: Presented, once: bool) -> Iterator[None]:
        """What was to be done once and got no answer may have been done, however often the client tried."""
        try:
            yield
        except self._no_answer as error:
            if not once:
                raise
            problem = f"what was to be done once under the fence of {presented.resource!r} got no answer ({error})"
            raise EngineUnavailable("Redis", problem, "unknown") from error

    async def _explain(
        self, error: Exception, script: Script, presented: Presented, count: int, words: list[Any]
    ) -> Any:
        """Send the whole script if the server does not know it; raise what else was refused, and why."""
        if isinstance(error, self._no_script):
            try:
                return await settled(self._client.eval(script.text, count, *words))
            except self._refusal as second:
                error = second
        said = str(error)
        if said.startswith(_STALE):
            raise StaleToken(presented.resource, presented.token, int(said.removeprefix(_STALE))) from None
        if said.startswith(_DONE):
            if script is self._command and len(words) == count + 2:
                return 1  # a check, which has no other answer
            problem = f"a write under the fence of {presented.resource!r} was done, but its answer was lost"
            raise EngineUnavailable("Redis", problem, "unknown") from None
        raise error


class FencedScript:
    """A caller's script behind the fence. It sees only its own KEYS and ARGV."""

    def __init__(self, fence: RedisFence, script: Script) -> None:
        self._fence, self._script = fence, script

    def __call__(
        self,
        grant: Token,
        *,
        keys: Iterable[Key] = (),
        args: Iterable[Value] = (),
        resource: str | None = None,
        once: bool = False,
    ) -> Any:
        """Run it, if the token is not stale; what it returns."""
        presented = present(grant, resource, once=once)
        return self._fence._start(self._script, presented, once, [*keys], [*args])
