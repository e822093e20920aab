"""Work whose result is recorded once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec, TypeVar

from holdfast.api.blocking.grant import Grant
from holdfast.api.waiting import Wait, chosen
from holdfast.locks.client import Client as Core
from holdfast.locks.hold import Entry
from holdfast.locks.naming import check_function, namer
from holdfast.locks.once import OnceFront
from holdfast.locks.spec import Spec
from holdfast.runtime.blocking import run

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

    def run(self, work: Callable[[Grant], Any], *, keep: Wait = ..., wait: Wait = ...) -> Any:
        """What is recorded, else what `work(grant)` returns, recorded for `keep` seconds.

        NotAcquired if others take longer than `wait`. RecordedFailure if it failed, and failures are recorded.
        """
        return run(self._front.run(work, self._under, chosen(wait, self._spec), keep))

    def forget(self) -> bool:
        """Forget what is recorded, so that the next one to ask works again; whether there was anything."""
        return run(self._front.forget())

    async def _under(self, entry: Entry, work: Callable[[Grant], Any]) -> Any:
        grant = Grant(self._client, entry)
        try:
            return work(grant)
        finally:
            grant._end_loan()

    def __call__(self, function: Callable[Concatenate[Grant, P], R]) -> Callable[P, R]:
        """Record what a function returns, under a key made from its arguments: `"payment:{payment_id}"`.

        The function gets the grant before what it is called with.
        """
        check_function(function, awaited=False)
        make_name = namer(self._spec.name, function, after=1)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            spec = replace(self._spec, name=make_name(*args, **kwargs))
            once = Once(self._client, spec, self._keep, self._failures)
            return once.run(lambda grant: function(grant, *args, **kwargs))  # type: ignore[no-any-return]

        return call
