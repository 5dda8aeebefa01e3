"""A balancer in front of several gateways: HAProxy if it is installed, else a small one of our own.

Both send a connection to a gateway whose `/readyz` answers with 200, and close the connections to one that no longer does.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.cluster.gateways import is_ready
from benchmarks.cluster.tcp_proxy import TcpProxy

CHECK_SECONDS = 0.5

HAPROXY = """\
global
    maxconn 4000

defaults
    mode http
    timeout connect 2s
    timeout client 75s
    timeout server 75s
    timeout tunnel 24h

frontend exuvia
    bind {address}
    default_backend gateways

backend gateways
    balance leastconn
    cookie gateway insert indirect nocache
    option redispatch
    option httpchk GET /readyz
    http-check expect status 200
    default-server check inter 500ms fall 2 rise 1 on-marked-down shutdown-sessions
{servers}
"""


class OwnBalancer(TcpProxy):
    """A TCP proxy to several ports of loopback, in turn."""

    def __init__(self, port: int, gateways: Sequence[int]) -> None:
        super().__init__(0, port)
        self._gateways = gateways
        self._ready: set[int] = set()
        self._next = cycle(gateways)
        self._checking: asyncio.Task[None]

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._checking = asyncio.create_task(self._check())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._checking.cancel()
        await super().__aexit__(kind, error, trace)

    async def connect(self, far: asyncio.Protocol) -> Path | int:
        """Connect to the next gateway that is ready. Raises OSError."""
        for port in islice(self._next, len(self._gateways)):
            if port in self._ready:
                self.target = port
                try:
                    return await super().connect(far)
                except OSError:
                    continue
        raise OSError("no gateway is ready")

    async def _check(self) -> None:
        while True:
            answers = await asyncio.gather(*(is_ready(port) for port in self._gateways))
            ready = {port for port, answer in zip(self._gateways, answers, strict=True) if answer}
            for port in self._ready - ready:
                self.reset(port)
            self._ready = ready
            await asyncio.sleep(CHECK_SECONDS)


class HaproxyBalancer:
    """HAProxy in a process of its own, used as an async context manager; `folder` is for its configuration."""

    def __init__(self, program: str, folder: Path, port: int, gateways: Sequence[int]) -> None:
        servers = "\n".join(
            f"    server gw{number} 127.0.0.1:{each} cookie gw{number}" for number, each in enumerate(gateways, 1)
        )
        self._configuration = folder / "haproxy.cfg"
        self._configuration.write_text(HAPROXY.format(address=f"127.0.0.1:{port}", servers=servers))
        self._program = program
        self._process: asyncio.subprocess.Process

    async def __aenter__(self) -> Self:
        command = ["setpriv", "--pdeathsig", "KILL", self._program, "-db", "-q", "-f", str(self._configuration)]
        quiet = asyncio.subprocess.DEVNULL
        self._process = await asyncio.create_subprocess_exec(
            *command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        await self._process.wait()


def balancer(folder: Path, port: int, gateways: Sequence[int]) -> HaproxyBalancer | OwnBalancer:
    """Return the balancer of this machine for the ports of some gateways."""
    program = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    return HaproxyBalancer(program, folder, port, gateways) if program else OwnBalancer(port, gateways)
