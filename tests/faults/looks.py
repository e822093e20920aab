"""What a keeper asks its engine for."""

from __future__ import annotations

from typing import Any

import holdfast
from holdfast.engines.engine import ListingVerbs
from holdfast.model import Claim


def looked_at(locks: holdfast.Client) -> list[str]:
    """The names of the claims that the keeper of this client looks at or sees listed, from now on."""
    keeper = locks._core.keeper
    assert keeper is not None
    verbs: Any = keeper.verbs
    look, names = verbs.look, []

    async def noted(claim: Claim, until: float) -> Any:
        names.append(claim.name)
        return await look(claim, until)

    verbs.look = noted
    if isinstance(verbs, ListingVerbs):
        watch_listing(verbs, names)
    return names


def watch_listing(verbs: Any, names: list[str]) -> None:
    """Note the names of the claims in every listing."""
    own_claims = verbs.own_claims

    async def listed(session: str, until: float) -> Any:
        found = await own_claims(session, until)
        if isinstance(found, list):
            names.extend(claim.name for claim, _ in found)
        return found

    verbs.own_claims = listed
