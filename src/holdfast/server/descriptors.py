"""How many files this process may have open: each connection is one."""

from __future__ import annotations

import logging
import resource

log = logging.getLogger("holdfast.server")

MACOS_MOST = 10_240
BESIDE = 400
"""How many it needs beside its connections: 200 for HTTP, 64 spare handshakes of each, its store and its sockets."""


def raise_limit() -> None:
    """Let there be as many as this process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        # macOS says that there is no limit, and has one.
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, MACOS_MOST), hard))


def check_limit(connections: int) -> None:
    """Warn if so many connections cannot be."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed < connections + BESIDE:
        log.warning(
            "fewer open files are allowed than the limit connections needs: raise ulimit -n, or lower that limit",
            extra={"open_files": allowed, "connections": connections},
        )
