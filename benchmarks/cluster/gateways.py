"""The gateways of a cluster: processes on homes of their own, whose database and clients are reached through proxies."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.cluster import effect_tool
from benchmarks.cluster.postgres_pair import NAMES, PostgresPair
from benchmarks.cluster.tcp_proxy import Passage, TcpProxy
from benchmarks.gateway_process import TOKEN, clean_environment
from benchmarks.ports import free_port
from benchmarks.process import ROOT

START_SECONDS = 240.0
STOP_SECONDS = 30.0
DATABASE = "exuvia"
_POLL_SECONDS = 0.02


class Gateway:
    """A gateway and the links that can be cut: `links` to each server of the database, `door` for the clients.

    Each start has a name of its own, such as `gw1.3`, which the database knows as the name of the application.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        links: Mapping[str, TcpProxy],
        environment: Mapping[str, str],
        hosts: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.home = folder / name
        self.links = links
        self.port = free_port()
        self.door = TcpProxy(self.port)
        self.starts = 0
        self.frozen = False
        self.root = ROOT
        """Where the program is that the next start runs."""
        self._environment = environment
        self._hosts = hosts
        self._process: asyncio.subprocess.Process | None = None

    @property
    def log(self) -> Path:
        """The file of the gateway's output."""
        return self.home / "printed.log"

    @property
    def running(self) -> bool:
        """True while the process runs, even if it is frozen."""
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int:
        """The id of the process."""
        assert self._process is not None
        return self._process.pid

    async def start(self, module: str = "exuvia") -> None:
        """Start the process; `module` is what Python runs."""
        self.starts += 1
        self.home.mkdir(parents=True, exist_ok=True)
        token = self.home / "token"
        token.write_text(TOKEN + "\n")
        token.chmod(0o600)
        hosts = ",".join("127.0.0.1" for _ in self.links)
        ports = ",".join(str(link.port) for link in self.links.values())
        options = f"host={hosts}&port={ports}&application_name={self.name}.{self.starts}"
        environment = {
            **self._environment,
            "PYTHONPATH": f"{self.root}{os.pathsep}{self._environment['PYTHONPATH']}",
            "DATABASE_URL": f"postgresql://postgres@/{DATABASE}?{options}",
            "EXUVIA__GATEWAY__ALLOWED_HOSTS": json.dumps([f"127.0.0.1:{self.door.port}", *self._hosts]),
        }
        command = [sys.executable, "-m", module, "run", "--home", str(self.home), "--port", str(self.port)]
        with self.log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *["setpriv", "--pdeathsig", "KILL", *command],
                cwd=self.root,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for this process alone
            )

    async def ready(self) -> None:
        """Wait until `/readyz` answers with 200. Raises RuntimeError with the gateway's output, and the stacks of its
        threads, if the process ends or is not ready in time."""
        try:
            async with asyncio.timeout(START_SECONDS):
                while not await is_ready(self.port):
                    if not self.running:
                        raise RuntimeError(f"{self.name} did not start: {self.log.read_text()[-3000:]}")
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            await self._end(signal.SIGABRT)
            raise RuntimeError(f"{self.name} is not ready: {self.log.read_text()[-6000:]}") from None

    async def kill(self) -> None:
        """End the process at once."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> int:
        """End the process as a service manager does, and return its exit code."""
        return await self._end(signal.SIGTERM)

    def freeze(self) -> None:
        """Stop the process where it is (SIGSTOP)."""
        self._signal(signal.SIGSTOP)
        self.frozen = True

    def wake(self) -> None:
        """Continue after `freeze`."""
        self._signal(signal.SIGCONT)
        self.frozen = False

    def link(self, passage: Passage) -> None:
        """Set how bytes pass between this gateway and the database."""
        for link in self.links.values():
            link.passage = passage

    async def _end(self, number: signal.Signals) -> int:
        if self._process is None:
            return 0
        if self.frozen and self.running:
            self.wake()
        self._signal(number)
        try:
            async with asyncio.timeout(STOP_SECONDS):
                return await self._process.wait()
        except TimeoutError:
            self._signal(signal.SIGKILL)
            return await self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        if self.running:
            os.kill(self.pid, number)


class Cluster:
    """Several gateways on a pair of servers, used as an async context manager. Entering starts the gateways.

    Args:
        pair: The servers; the database is created if it is missing.
        folder: For the homes, and the file of the tool's effects.
        count: Number of gateways.
        script: The lines of the scripted model.
        settings: Further environment variables of the gateways.
        module: What Python runs instead of `exuvia`.
        address: The address of a balancer in front of the gateways.
        root: Where the program is that the gateways run first.
    """

    def __init__(
        self,
        pair: PostgresPair,
        folder: Path,
        count: int,
        *,
        script: list[dict[str, Any]],
        settings: Mapping[str, str] | None = None,
        module: str = "exuvia",
        address: str = "",
        root: Path = ROOT,
    ) -> None:
        self.pair = pair
        self.folder = folder
        self.gateways: list[Gateway] = []
        self._count = count
        self._script = script
        self._settings = dict(settings or {})
        self._hosts = [address] if address else []
        self._module = module
        self._root = root
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        script = self.folder / "script.jsonl"
        script.write_text("".join(json.dumps(line) + "\n" for line in self._script))
        effect_tool.install(self.folder / "plugins")
        environment = _environment(self.folder, script) | self._settings
        try:
            for number in range(1, self._count + 1):
                links = {name: await self._proxy(TcpProxy(self.pair.socket(name))) for name in NAMES}
                gateway = Gateway(f"gw{number}", self.folder, links, environment, self._hosts)
                gateway.root = self._root
                await self._proxy(gateway.door)
                self.gateways.append(gateway)
                await self.start(gateway)
            for gateway in self.gateways:
                await gateway.ready()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    @property
    def effects(self) -> Path:
        """The file of the tool's effects."""
        return self.folder / "effects"

    @property
    def url(self) -> str:
        """The database's URL, past the proxies."""
        return self.pair.url(DATABASE)

    async def start(self, gateway: Gateway) -> None:
        """Start a gateway, as this cluster does."""
        await gateway.start(self._module)

    async def stop(self) -> list[int]:
        """Stop all gateways as a service manager does, and return their exit codes."""
        return await asyncio.gather(*(gateway.stop() for gateway in self.gateways))

    async def _proxy(self, proxy: TcpProxy) -> TcpProxy:
        return await self._stack.enter_async_context(proxy)

    async def _close(self) -> None:
        await asyncio.gather(*(gateway.kill() for gateway in self.gateways))
        await self._stack.aclose()


async def is_ready(port: int) -> bool:
    """Return True if `/readyz` of a gateway answers with 200 within a second."""
    try:
        async with asyncio.timeout(1):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
                return (await reader.read(4096)).startswith(b"HTTP/1.1 200 ")
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False


def _environment(folder: Path, script: Path) -> dict[str, str]:
    return clean_environment() | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder / "plugins")]),
        "PYTHONFAULTHANDLER": "1",
        effect_tool.EFFECTS: str(folder / "effects"),
        "EXUVIA__STORE__KIND": '"postgres"',
        "EXUVIA__STORE__URL": '"env:DATABASE_URL"',
        "EXUVIA__AGENT__MODEL": '"scripted:script"',
        "EXUVIA__AGENT__TITLES": "false",
        "EXUVIA__APPROVALS__DEFAULT": '"allow"',
        "EXUVIA__PLUGINS__ALLOW": f'["{effect_tool.NAME}"]',
        "EXUVIA__PROVIDERS__SCRIPTED__SCRIPT": json.dumps(str(script)),
    }
