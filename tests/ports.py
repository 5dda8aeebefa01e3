"""Free ports for gateways that are started, ended and started again on the same port."""

from __future__ import annotations

import random
import socket

_CHOICE = random.SystemRandom()


def free_port() -> int:
    """Return a free port of loopback below the kernel's ephemeral range.

    A port of that range may be given to any other process's connection or server while the gateway of the test is down.
    """
    while True:
        port = _CHOICE.randrange(12_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
