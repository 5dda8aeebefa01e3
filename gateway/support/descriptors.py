"""The limit on file descriptors, and the number of connections that it allows.

Without a free descriptor no journal can be written and no file read. The number of connections is therefore bounded, and
the remaining descriptors are reserved for journals (`sessions.files.committer`), files, SQLite, the log, and connections to
model servers.
"""

from __future__ import annotations

import resource
from contextlib import suppress

MOST = 65_536
"""The highest limit that is set: some systems allow a billion, and a subprocess may try to close each descriptor."""

KEPT = 256
"""Descriptors that are reserved for everything but connections, or half of the limit if that is less."""


def reachable() -> int:
    """Return the limit that a start sets: the hard limit, at most MOST, and never below the current one."""
    now, most = (MOST if limit == resource.RLIM_INFINITY else limit for limit in resource.getrlimit(resource.RLIMIT_NOFILE))
    return max(now, min(MOST, most))


def raise_limit() -> None:
    """Raise this process's limit on file descriptors; the usual soft limit is meant for programs that need few."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if now != resource.RLIM_INFINITY and now < reachable():
        with suppress(ValueError, OSError):  # macOS has a further limit, which it does not say here
            resource.setrlimit(resource.RLIMIT_NOFILE, (reachable(), most))


def connections() -> int:
    """Return how many connections may be open; each may need a file besides its socket, as an upload does."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        limit = MOST
    return (limit - min(KEPT, limit // 2)) // 2


def unauthenticated() -> int:
    """Return how many unauthenticated connections one address may have."""
    return max(16, connections() // 4)


def websockets() -> int:
    """Return how many connections may be websockets; the others are reserved for short HTTP requests."""
    return connections() * 3 // 4
