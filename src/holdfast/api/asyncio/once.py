"""Work whose result is recorded once, awaited."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec, TypeVar

from holdfast.api.asyncio.grant import Grant
from holdfast.api.body import Body
from holdfast.api.waiting import Wait, chosen
from holdfast.locks.client import Client as Core
from holdfast.locks.hold import Entry
from holdfast.locks.naming import check_function, namer
from holdfast.locks.once import OnceFront
from holdfast.locks.spec import Spec

P = ParamSpec("P")
R = TypeVar("R")


class Once:
    """A key under which work is done, and its result recorded for whoever comes again.

    The work can start again if a worker was lost half-way; a late result of the lost one is
    refused. Where somebody else does the work, give them a key that is the same in every try;
    the token of the grant is for a fence.
    """

    def __init__(self, client: Core, spec: Spec, keep: float | None, failures: bool) -> None:
        self._client, self._spec, self._keep, self._failures = client, spec, keep, failures
        self._front = OnceFront(client, spec, keep, failures)

    async def run(self, work: Callable[[Grant], Any], *, keep: Wait = ..., wait: Wait = ...) -> Any:
        """What is recorded, else what `work(grant)` returns, recorded for `keep` seconds.

        NotAcquired if others take longer than `wait`. RecordedFailure if it failed, and failures are recorded.
        """
        return await self._front.run(work, self._under, chosen(wait, self._spec), keep)

    async def forget(self) -> bool:
        """Forget what is recorded, so that the next one to ask works again; whether there was anything."""
        return await self._front.forget()

    async def _under(self, entry: Entry, work: Callable[[Grant], Any]) -> Any:
        grant = Grant(self._client, entry)

        async def still_held() -> None:
            grant.check()

        body = Body([entry.held], still_held)
        try:
            result = work(grant)
            if inspect.isawaitable(result):
                result = await result
        except BaseException as error:
            await body.end(error)
            raise
        else:
            await body.end(None)
            return result
        finally:
            grant._end_loan()

    def __call__(self, function: Callable[Concatenate[Grant, P], Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R]]:
        """Record what a coroutine function returns, under a key made from its arguments: `"payment:{payment_id}"`.

        The function gets the grant before what it is called with.
        """
        check_function(function, awaited=True)
        make_name = namer(self._spec.name, function, after=1)

        @functools.wraps(function)
        async def call(*args: P.args, **kwargs: P.kwargs) -> R:
            spec = replace(self._spec, name=make_name(*args, **kwargs))
            once = Once(self._client, spec, self._keep, self._failures)
            return await once.run(lambda grant: function(grant, *args, **kwargs))  # type: ignore[no-any-return]

        return call
