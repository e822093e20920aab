"""The user's own deployment: nothing of it is touched, faults are the clients' own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.core import urls
from holdfast.verify.target import Address, Target


class UrlTarget(Target):
    """What a URL names. Everything is done under names of this run, in a namespace of the verifier."""

    name = "url"
    ttl = 3.0

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder)
        self._url = url

    @property
    def shown(self) -> str:
        return str(urls.parse(self._url))

    @property
    def addresses(self) -> list[Address]:
        return []

    def url(self, addresses: Sequence[Address]) -> str:
        return self._url
