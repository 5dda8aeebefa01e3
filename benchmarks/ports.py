"""Free ports for servers that are started, ended and started again on the same port."""

from __future__ import annotations

import os
import socket
from collections import deque

_HELD = 64  # sockets; a long process would run out of descriptors with all of them
_holding: deque[int] = deque()


def free_port() -> int:
    """Return a port of loopback that the kernel keeps for this process until it has asked for 64 others.

    The socket that holds it does not listen, so a server that sets SO_REUSEADDR, as servers do, can listen there, as often
    as it likes. Nobody else is given the port: Linux assigns a port to no connection and no server while a socket holds it.
    """
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # not before: a port that others hold is not shared
        port: int = holder.getsockname()[1]
        _holding.append(holder.detach())
    if len(_holding) > _HELD:
        os.close(_holding.popleft())
    return port
