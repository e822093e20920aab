"""What a keeper asks its engine for."""

from __future__ import annotations

from typing import Any

import holdfast
from holdfast.model import Claim


def looked_at(locks: holdfast.Client) -> list[str]:
    """The names of the claims that the keeper of this client looks at, from now on."""
    keeper = locks._core.keeper
    assert keeper is not None
    verbs: Any = keeper.verbs
    look, names = verbs.look, []

    async def noted(claim: Claim, until: float) -> Any:
        names.append(claim.name)
        return await look(claim, until)

    verbs.look = noted
    return names
