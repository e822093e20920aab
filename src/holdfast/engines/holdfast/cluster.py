"""How a cluster of lock servers is: what each of them says when it is asked."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from hiredis import ReplyError

from holdfast.core.urls import Url
from holdfast.engines.holdfast.line import Line
from holdfast.engines.holdfast.route import PORT, Route, make_route
from holdfast.engines.holdfast.words import told
from holdfast.engines.resp.wire import Address, Lost, parse_address
from holdfast.errors import HoldfastError
from holdfast.runtime import clock

LIMIT = 3.0
"""How long a server may take to answer."""


@dataclass(frozen=True)
class Answer:
    """What one server said of itself and the others, or why it said nothing."""

    address: str
    status: dict[str, Any] = field(default_factory=dict)
    problem: str = ""

    @property
    def leads(self) -> bool:
        return self.status.get("role") == "leader"

    @property
    def members(self) -> list[str]:
        """Where it believes the servers of the cluster to be."""
        return [member["advertise"] for member in self.status.get("members", ())]

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {"address": self.address, "answers": not self.problem, "problem": self.problem or None, **self.status}


@dataclass(frozen=True)
class Survey:
    """The answers of all servers: those that were named, then the others that they know."""

    answers: tuple[Answer, ...]

    @property
    def leader(self) -> Answer | None:
        """The one that says of itself that it leads. A follower's word is not enough: the leader may be gone."""
        return next((answer for answer in self.answers if answer.leads), None)

    @property
    def silent(self) -> tuple[Answer, ...]:
        """Those that did not answer."""
        return tuple(answer for answer in self.answers if answer.problem)

    @property
    def healthy(self) -> bool:
        """Whether one leads and all answer."""
        return self.leader is not None and not self.silent

    @property
    def etcd(self) -> list[dict[str, Any]]:
        """The nodes under the servers, as the leader sees them, or else whoever answered first."""
        seen = self.leader or next((answer for answer in self.answers if answer.status), None)
        found: list[dict[str, Any]] = [] if seen is None else seen.status.get("etcd", [])
        return found

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "healthy": self.healthy,
            "leader": None if self.leader is None else self.leader.address,
            "servers": [answer.as_dict() for answer in self.answers],
            "etcd": self.etcd,
        }


def ask(route: Route, address: Address, within: float = LIMIT) -> Answer:
    """What one server says of the cluster."""
    alone = replace(route, durable=False, addresses=(address,))
    until = clock.now() + within
    try:
        line = Line(address, alone, lambda push: None, until)
        try:
            reply = line.call(told("HF.CLUSTER"), until)
        finally:
            line.end("it was asked")
    except Lost as lost:
        return Answer(str(address), problem=lost.problem)
    if isinstance(reply, ReplyError):
        return Answer(str(address), problem=str(reply))
    status: dict[str, Any] = json.loads(reply)
    return Answer(str(address), status)


def survey(url: Url, within: float = LIMIT) -> Survey:
    """Ask every server that a URL names, and every one that those know."""
    route = make_route(url)
    found: dict[str, Answer] = {}
    wanted = {str(address): address for address in route.addresses}
    while wanted:
        with ThreadPoolExecutor(len(wanted)) as askers:
            for answer in askers.map(lambda address: ask(route, address, within), wanted.values()):
                found[answer.address] = answer
        wanted = _unasked(found)
    return Survey(tuple(found.values()))


def _unasked(found: dict[str, Answer]) -> dict[str, Address]:
    """Members that somebody knows and nobody has asked, by any of their names."""
    answered = {answer.status["id"] for answer in found.values() if answer.status}
    unasked: dict[str, Address] = {}
    for answer in found.values():
        for member in answer.status.get("members", ()):
            if member["id"] in answered or member["advertise"] in found:
                continue
            try:
                address = parse_address(member["advertise"], PORT)
            except HoldfastError:
                continue  # a newer server's way of writing it: whoever said so has answered himself
            if str(address) not in found:
                unasked[str(address)] = address
    return unasked
