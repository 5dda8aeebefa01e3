"""The limit on the address space (`ulimit -v`, RLIMIT_AS), and running out of memory.

A thread reserves far more address space than it uses: typically 8 MB of stack and a heap arena of 64 MB. If an allocation
fails inside a C library, the process may crash there (msgspec's encoders write to a buffer that they did not get), and no
Python code can prevent that. The gateway therefore refuses to start with too little: thirty conversations and two requests
of 20 MB at once took 1.7 GB on four processors, where 2.1 GB are required. Limits on resident memory, such as
MemoryMax= in a systemd unit or a container's limit, are not affected.
"""

from __future__ import annotations

import os
import resource

from gateway.support.errors import StartRefused
from sessions.files.fsync import SCARCE

MB = 1024 * 1024
BASE = 1024 * MB
"""Bytes required besides threads: the program, its databases and the requests in flight."""

A_THREAD = 72 * MB
OWN_THREADS = 8
"""Threads besides those of asyncio's executor."""


def needed(processors: int | None = None) -> int:
    """Return the bytes of address space that a gateway needs.

    asyncio's default executor has four more threads than there are processors.
    """
    return BASE + A_THREAD * (min(32, (processors or os.cpu_count() or 1) + 4) + OWN_THREADS)


def shortage(limit: int) -> str | None:
    """Return a sentence if a limit in bytes is too low, else None."""
    if limit == resource.RLIM_INFINITY or limit >= needed():
        return None
    return f"The address space is limited to {limit // MB} MB (ulimit -v), and the gateway needs {needed() // MB} MB."


def check_limit() -> None:
    """Raise StartRefused if this process has too little address space."""
    if sentence := shortage(resource.getrlimit(resource.RLIMIT_AS)[0]):
        raise StartRefused(f"{sentence} Raise that limit, or limit the memory that is used instead: MemoryMax= in the unit.")


def is_exhaustion(error: BaseException) -> bool:
    """Return True if an error means that memory, threads or file descriptors ran out."""
    if isinstance(error, OSError):
        return error.errno in SCARCE
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "can't start new thread" in str(error))
