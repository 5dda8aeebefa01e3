"""Network namespaces: traffic and faults of a benchmark stay on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def refuse_default_route() -> None:
    """Raise RuntimeError in a network namespace that was made for this process and has a default route.

    Who makes a namespace wants to be alone in it; a default route is a way out.
    """
    if _is_made() and _has_default_route():
        raise RuntimeError("This network namespace has a default route; make one without, as `unshare --net` does.")


def _is_made() -> bool:
    """Return True if a process that led to this one is in another network namespace."""
    here = os.readlink("/proc/self/ns/net")
    return any(there != here for there in _namespaces_of_ancestors())


def _namespaces_of_ancestors() -> Iterator[str]:
    pid = os.getppid()
    while pid > 0:
        try:
            yield os.readlink(f"/proc/{pid}/ns/net")
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # of another user, or ended
            return


def _has_default_route() -> bool:
    lines = Path("/proc/net/route").read_text().splitlines()[1:]
    return any(line.split()[1] == "00000000" for line in lines)
