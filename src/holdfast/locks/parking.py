"""Keepers around a fork: their threads end before it, and begin again in the parent after it.

A process that forks while it has several threads can deadlock in the child, and Python 3.12 and newer warn about it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdfast.locks.keeper import Keeper, log
from holdfast.runtime import clock

if TYPE_CHECKING:
    from holdfast.locks.client import Client

LONGEST = 0.25
"""Seconds that a fork waits for all keepers together. One that is inside a request may take longer: the fork goes on
without it, as safe as before, but Python warns."""


def park(clients: Iterable[Client]) -> None:
    """End the threads of all keepers, as far as that takes no longer than `LONGEST`."""
    until = clock.now() + LONGEST
    keepers = [client.keeper for client in clients if client.keeper is not None]
    for keeper in keepers:
        keeper.park()
    for keeper in keepers:
        if keeper.thread is not None:
            _wait_for_end(keeper.thread, until)


def go_on(clients: Iterable[Client]) -> None:
    """Start the keepers again whose threads have ended."""
    for client in clients:
        if client.keeper is not None and client.keeper.leave_park():
            _start_again(client, client.keeper)


def _start_again(client: Client, keeper: Keeper) -> None:
    try:
        client.run_keeper(keeper)
    except RuntimeError as error:
        log.exception("%s: the keeper cannot go on after a fork", client)
        keeper.fell(error)


def _wait_for_end(thread: threading.Thread, until: float) -> None:
    if thread is threading.current_thread():
        return
    while thread.ident is None and clock.now() < until:
        time.sleep(0)  # another thread is about to start it
    if thread.ident is None:
        return
    thread.join(max(0.0, until - clock.now()))
    # The kernel counts a thread for some microseconds after Python has joined it, and Python asks the kernel.
    while not thread.is_alive() and os.path.exists(f"/proc/self/task/{thread.native_id}") and clock.now() < until:
        time.sleep(0)
