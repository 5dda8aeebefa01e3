"""Free ports for gateways that are started, ended and started again on the same port."""

from __future__ import annotations

import atexit
import os
import random
import socket
import tempfile
from contextlib import suppress
from pathlib import Path

_CHOICE = random.SystemRandom()


def free_port() -> int:
    """Return a free port of loopback below the kernel's ephemeral range, which no other test process is given meanwhile.

    A port of that range may be given to any other process's connection or server while the gateway of the test is down.
    """
    while True:
        port = _CHOICE.randrange(12_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if _claimed(port):
            return port


def _claimed(port: int) -> bool:
    """Claim a port for as long as this process lives; return False if another one has."""
    claim = Path(tempfile.gettempdir()) / f"exuvia-ports-{os.getuid()}" / str(port)
    claim.parent.mkdir(mode=0o700, exist_ok=True)
    with suppress(FileNotFoundError, ValueError):
        owner = int(os.readlink(claim))
        if Path(f"/proc/{owner}").exists() or not Path("/proc").exists():
            return False
        claim.unlink(missing_ok=True)
    try:
        claim.symlink_to(str(os.getpid()))  # made with its content, at once
    except FileExistsError:
        return False
    atexit.register(claim.unlink, missing_ok=True)
    return True
