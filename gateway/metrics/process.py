"""Process figures from the operating system. A figure is None where the system does not provide it."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

_STATM = Path("/proc/self/statm")
_DESCRIPTORS = (Path("/proc/self/fd"), Path("/dev/fd"))


def memory() -> int:
    """Return the resident memory in bytes; without /proc, its peak."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


def descriptors() -> int | None:
    """Return the number of open file descriptors."""
    for folder in _DESCRIPTORS:
        try:
            return len(os.listdir(folder)) - 1  # the listing itself needs one
        except OSError:
            continue
    return None


def most_descriptors() -> int | None:
    """Return the limit of open file descriptors; None if there is none."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if limit == resource.RLIM_INFINITY else limit
