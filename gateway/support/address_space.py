"""Address space: how much of it a gateway needs, where a limit is set (`ulimit -v`, RLIMIT_AS), and running out of memory.

A thread reserves much more than it uses: its stack, 8 MB as a rule, and a heap of 64 MB of its own. Where a C library gets
no memory, the process may end within that library (msgspec's encoders write to a buffer that they were not given), and no
Python code can prevent that. So a gateway does not start with less than it needs: thirty conversations and two requests of
20 MB at once took 1.7 GB on four processors, of the 2.1 GB that are asked for there. A limit on memory that is really used,
as MemoryMax= in a systemd unit or that of a container, is not concerned.
"""

from __future__ import annotations

import os
import resource

from gateway.support.errors import StartRefused
from sessions.files.fsync import SCARCE

MB = 1024 * 1024
BASE = 1024 * MB
"""Needed without counting threads: the program, its databases and what the requests under way hold."""

A_THREAD = 72 * MB
OWN_THREADS = 8
"""Threads beside those of asyncio's executor."""


def needed(processors: int | None = None) -> int:
    """Return the bytes of address space that a gateway needs. asyncio has four more threads than there are processors."""
    return BASE + A_THREAD * (min(32, (processors or os.cpu_count() or 1) + 4) + OWN_THREADS)


def shortage(limit: int) -> str | None:
    """Return a sentence if a limit in bytes is too low; `resource.RLIM_INFINITY` is none."""
    if limit == resource.RLIM_INFINITY or limit >= needed():
        return None
    return f"The address space is limited to {limit // MB} MB (ulimit -v), and the gateway needs {needed() // MB} MB."


def check_limit() -> None:
    """Raises StartRefused if this process may have too little."""
    if sentence := shortage(resource.getrlimit(resource.RLIMIT_AS)[0]):
        raise StartRefused(f"{sentence} Raise that limit, or limit the memory that is used instead: MemoryMax= in the unit.")


def is_exhaustion(error: BaseException) -> bool:
    """Return True if an error says that there is no memory, no further thread or no file descriptor."""
    if isinstance(error, OSError):
        return error.errno in SCARCE
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "can't start new thread" in str(error))
