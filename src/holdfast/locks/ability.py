"""What an engine can do at all. What its guarantees rule out is refused before anything is sent."""

from __future__ import annotations

from holdfast.engines.engine import NarrowEngine
from holdfast.errors import Unsupported
from holdfast.locks.client import Client

CAN = "sqlite://"
"""An engine that can do everything, and that everybody has."""


def need_record(client: Client, what: str) -> None:
    """Raise Unsupported where the engine does not keep on record who holds what."""
    _need(client, client.engine.guarantees.recorded, what)


def need_hand_over(client: Client) -> None:
    """Raise Unsupported where a grant cannot be handed over."""
    _need(client, client.engine.guarantees.hand_over, "a hand-over")


def need_events(client: Client, what: str) -> None:
    """Raise Unsupported where the engine tells nobody what happens."""
    _need(client, bool(client.engine.guarantees.events), what)


def need_cells(client: Client, kind: str) -> None:
    """Raise Unsupported where the engine keeps no cells."""
    _need(client, client.engine.guarantees.cells, "cells" if kind == "cell" else f"{kind}, which needs a cell")


def _need(client: Client, given: bool, what: str) -> None:
    if not given:
        engine = client.engine
        raise Unsupported(str(client), what, engine.instead if isinstance(engine, NarrowEngine) else CAN)
