"""The limits of the process on address space and file descriptors, and the number of connections that they allow.

A thread reserves far more address space (`ulimit -v`, RLIMIT_AS) than it uses: typically 8 MB of stack and a heap arena of
64 MB. If an allocation fails inside a C library, the process may crash there (msgspec's encoders write to a buffer that they
did not get), and no Python code can prevent that. The gateway therefore refuses to start with too little: thirty
conversations and two requests of 20 MB at once took 1.7 GB on four processors, where 2.1 GB are required. Limits on resident
memory, such as MemoryMax= in a systemd unit or a container's limit, are not affected.

Without a free descriptor no journal can be written and no file read. The number of connections is therefore bounded, and
the remaining descriptors are reserved for journals (`sessions.files.committer`), files, SQLite, the log, and connections to
model servers.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress

from gateway.support.errors import StartRefused
from sessions.files.fsync import SCARCE

MB = 1024 * 1024
BASE = 1024 * MB
"""Bytes of address space required besides threads: the program, its databases and the requests in flight."""

THREAD = 72 * MB
OWN_THREADS = 8
"""Threads besides those of asyncio's executor."""

MOST_DESCRIPTORS = 65_536
"""The highest limit that is set: some systems allow a billion, and a subprocess may try to close each descriptor."""

RESERVED_DESCRIPTORS = 256
"""Descriptors that are reserved for everything but connections, or half of the limit if that is less."""


def address_space_needed(processors: int | None = None) -> int:
    """Return the bytes of address space that a gateway needs.

    asyncio's default executor has four more threads than there are processors.
    """
    return BASE + THREAD * (min(32, (processors or os.cpu_count() or 1) + 4) + OWN_THREADS)


def address_space_shortage(limit: int) -> str | None:
    """Return a sentence if a limit in bytes is too low, else None."""
    needed = address_space_needed()
    if limit == resource.RLIM_INFINITY or limit >= needed:
        return None
    return f"The address space is limited to {limit // MB} MB (ulimit -v), and the gateway needs {needed // MB} MB."


def check_address_space() -> None:
    """Raise StartRefused if this process has too little address space."""
    if sentence := address_space_shortage(resource.getrlimit(resource.RLIMIT_AS)[0]):
        raise StartRefused(f"{sentence} Raise that limit, or limit the memory that is used instead: MemoryMax= in the unit.")


def is_exhaustion(error: BaseException) -> bool:
    """Return True if an error means that memory, threads or file descriptors ran out."""
    if isinstance(error, OSError):
        return error.errno in SCARCE
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "can't start new thread" in str(error))


def reachable_descriptors() -> int:
    """Return the limit that a start sets: the hard limit, at most MOST_DESCRIPTORS, and never below the current one."""
    now, most = (
        MOST_DESCRIPTORS if limit == resource.RLIM_INFINITY else limit
        for limit in resource.getrlimit(resource.RLIMIT_NOFILE)
    )
    return max(now, min(MOST_DESCRIPTORS, most))


def raise_descriptor_limit() -> None:
    """Raise this process's limit on file descriptors; the usual soft limit is meant for programs that need few."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if now != resource.RLIM_INFINITY and now < reachable_descriptors():
        with suppress(ValueError, OSError):  # macOS has a further limit, which it does not say here
            resource.setrlimit(resource.RLIMIT_NOFILE, (reachable_descriptors(), most))


def most_connections() -> int:
    """Return how many connections may be open; each may need a file besides its socket, as an upload does."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        limit = MOST_DESCRIPTORS
    return (limit - min(RESERVED_DESCRIPTORS, limit // 2)) // 2


def most_unauthenticated() -> int:
    """Return how many unauthenticated connections one address may have."""
    return max(16, most_connections() // 4)


def most_websockets() -> int:
    """Return how many connections may be websockets; the others are reserved for short HTTP requests."""
    return most_connections() * 3 // 4
