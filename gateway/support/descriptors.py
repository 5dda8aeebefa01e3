"""File descriptors: how many this process may have, and how many of them connections take.

Whoever takes the last descriptor takes it from everybody: no journal could be written, no file read. So connections are
bounded, and the rest is kept for what the gateway does: its journals (`sessions.files.committer`), files that its threads
read and
write, SQLite, the log, connections to model servers.
"""

from __future__ import annotations

import resource
from contextlib import suppress

MOST = 65_536
"""The limit is raised to this at most: some systems allow a billion, and programs that we start may close each of them."""

KEPT = 256
"""Descriptors that are kept for everything but connections, or half of them where there are less than twice as many."""


def reachable() -> int:
    """The limit that a start raises its own to: as many as this user may have, up to MOST, and never less than now."""
    now, most = (MOST if limit == resource.RLIM_INFINITY else limit for limit in resource.getrlimit(resource.RLIMIT_NOFILE))
    return max(now, min(MOST, most))


def raise_limit() -> None:
    """Let this process have as many descriptors as it may, since the usual limit is for programs that need few."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if now != resource.RLIM_INFINITY and now < reachable():
        with suppress(ValueError, OSError):  # macOS has a further limit, which it does not say here
            resource.setrlimit(resource.RLIMIT_NOFILE, (reachable(), most))


def connections() -> int:
    """How many connections may be open: each may need a file beside its socket, as an upload does."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        limit = MOST
    return (limit - min(KEPT, limit // 2)) // 2


def unauthenticated() -> int:
    """How many connections one address may have over which nobody has said yet who they are."""
    return max(16, connections() // 4)


def websockets() -> int:
    """How many of them may be websockets, which stay: the others are for health checks, files and pages."""
    return connections() * 3 // 4
