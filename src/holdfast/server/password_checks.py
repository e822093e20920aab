"""Passwords that wait to be checked, one after another in one thread: 50 ms each must not hold up the loop.

Hosts take turns, and so do the users that one host names: a host that sends wrong passwords without end holds up
its own logins of that user, and no others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv6Address, ip_address, ip_network

from holdfast.server import passwords
from holdfast.server.wire_error import WireError

MOST_WAITING = 100
"""Where more wait, one of the host and user with most is told to come back."""
DELAY_PER_FAILURE, LONGEST_DELAY = 0.05, 5.0
"""Seconds that the answer to a wrong password waits, for each recent one of that host, and at most."""
MOST_FAILURES = round(LONGEST_DELAY / DELAY_PER_FAILURE)
MOST_HOSTS = 10_000
"""Hosts whose failures are remembered."""


def network_of(peer: str) -> str:
    """The host in `host:port`; of an IPv6 address its network of 64 bits, because one machine has all of that."""
    host = peer.rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return host
    return str(address.ipv4_mapped or ip_network((address, 64), strict=False))


@dataclass(slots=True)
class Check:
    """A password to be compared with what is protected; nothing fits where that is empty."""

    network: str
    user: str
    password: bytes
    protected: str
    is_wanted: Callable[[], bool]
    """Whether an answer is still waited for."""
    done: asyncio.Future[bool]


class PasswordChecks:
    """Checks passwords, and remembers for a while which were right and which were wrong."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast-passwords")
        self._waiting: dict[str, dict[str, deque[Check]]] = {}
        """By network and user, the next one first."""
        self.count = 0
        """How many wait or are being checked."""
        self._under_way = self._closed = False
        self.right, self.wrong = passwords.Remembered(), passwords.Remembered()

    def close(self) -> None:
        """Answer none of those that wait."""
        self._closed = True
        for users in self._waiting.values():
            for checks in users.values():
                for check in checks:
                    check.done.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def known(self, user: str, password: bytes, protected: str) -> bool | None:
        """Whether it fits, if that was found out lately."""
        if protected and self.right.knows(password, protected):
            return True
        # With the user's name: otherwise one could find out which users do not exist, which share one digest.
        return False if self.wrong.knows(marked(user, password), protected) else None

    def begin(
        self, network: str, user: str, password: bytes, protected: str, is_wanted: Callable[[], bool]
    ) -> asyncio.Future[bool]:
        """Whether the password fits; WireError if too many wait, and this is one of the host and user with most."""
        check = Check(network, user, password, protected, is_wanted, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(network, {}).setdefault(user, deque()).append(check)
        self.count += 1
        if self.count > MOST_WAITING + self._under_way:
            self._refuse_one()
        self._next()
        return check.done

    def _refuse_one(self) -> None:
        """Tell the one that came last, of those with most of the host with most, to come back."""
        network = max(self._waiting, key=lambda name: sum(map(len, self._waiting[name].values())))
        users = self._waiting[network]
        user = max(users, key=lambda name: len(users[name]))
        check = users[user].pop()
        if not users[user]:
            del users[user]
        if not users:
            del self._waiting[network]
        self.count -= 1
        text = f"{MOST_WAITING} logins are being checked: come back in a moment"
        check.done.set_exception(WireError("HFLIMIT", text))

    def _next(self) -> None:
        while self._waiting and not (self._under_way or self._closed):
            check = self._pop()
            known = self.known(check.user, check.password, check.protected)
            if check.done.done() or not check.is_wanted():
                self.count -= 1
                check.done.cancel()
            elif known is not None:
                self.count -= 1
                check.done.set_result(known)
            else:
                self._under_way = True
                work = asyncio.get_running_loop().run_in_executor(self._thread, fits, check.password, check.protected)
                work.add_done_callback(partial(self._over, check))

    def _pop(self) -> Check:
        """The next one; its host and its user come behind the others."""
        network, users = next(iter(self._waiting.items()))
        user, checks = next(iter(users.items()))
        del self._waiting[network], users[user]
        check = checks.popleft()
        if checks:
            users[user] = checks
        if users:
            self._waiting[network] = users
        return check

    def _over(self, check: Check, work: asyncio.Future[bool]) -> None:
        self._under_way = False
        self.count -= 1
        if work.cancelled() or check.done.done():
            check.done.cancel()
        elif work.exception() is not None:
            check.done.set_exception(work.exception() or RuntimeError())
        else:
            if work.result():
                self.right.add(check.password, check.protected)
            else:
                self.wrong.add(marked(check.user, check.password), check.protected)
            check.done.set_result(work.result())
        self._next()


class Failures:
    """Wrong passwords of each host. The more there were lately, the later the next one is answered; none is later."""

    def __init__(self) -> None:
        self._count: dict[str, int] = {}

    def add(self, network: str) -> float:
        """One more came from there: the seconds until it is answered."""
        count = min(self._count.pop(network, 0) + 1, MOST_FAILURES)
        self._count[network] = count
        if len(self._count) > MOST_HOSTS:
            del self._count[next(iter(self._count))]
        return count * DELAY_PER_FAILURE

    def second_over(self) -> None:
        """One of each host is forgotten."""
        self._count = {network: count - 1 for network, count in self._count.items() if count > 1}


def fits(password: bytes, protected: str) -> bool:
    """Whether it is the password. It takes as long where there is none."""
    return passwords.fits(password, protected or passwords.decoy()) and bool(protected)


def marked(user: str, password: bytes) -> bytes:
    """What is remembered of a wrong password."""
    return user.encode() + b"\0" + password
