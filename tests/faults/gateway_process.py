"""A gateway in a process of its own, which can be slowed down, made to fail, and killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.ports import free_port
from tests.gateway.gateways import TOKEN, Client
from tests.waiting import DEADLINE, deadline

ROOT = Path(__file__).parents[2]

TOOL = """
import asyncio
import os
from pathlib import Path
from plugins.api.tool import ToolOutput
from plugins.api.hookspecs import hookimpl
from sessions.events.messages import ToolDefinition


class Stamp:
    definition = ToolDefinition(name="stamp", description="Puts a stamp.", parameters={"type": "object"})
    repeatable = False

    def __init__(self, context):
        self.path = context.workspace / "stamps"

    async def run(self, arguments, call):
        with self.path.open("a") as file:
            file.write(call.call + "\\n")
        await asyncio.sleep(float(os.environ.get("STAMP_SECONDS", "0")))
        return ToolOutput(text="stamped")


@hookimpl
def register_tools():
    return [Stamp]
"""


def install_tool(folder: Path) -> None:
    """Lay a plugin with one unrepeatable tool where an import of that folder finds it as an installed package."""
    folder.mkdir(parents=True)
    (folder / "stamping.py").write_text(TOOL)
    info = folder / "stamping-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stamping\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[exuvia]\nstamping = stamping\n")


class GatewayProcess:
    """One run of `exuvia run` on a home; `faults` are options of strace that slow down or fail its system calls."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, log: Path) -> None:
        self.process = process
        self.port = port
        self.log = log

    async def connect(self, http: aiohttp.ClientSession) -> Client:
        url = f"http://127.0.0.1:{self.port}/ws"
        socket_ = await http.ws_connect(url, headers={"Authorization": f"Bearer {TOKEN}"}, max_msg_size=0)
        client = Client(socket_)
        assert (await client.next())["type"] == "welcome"
        return client

    async def ready(self, http: aiohttp.ClientSession, seconds: float = DEADLINE) -> None:
        async with asyncio.timeout(seconds):
            while True:
                if self.process.returncode is not None:
                    raise AssertionError(f"the gateway ended with {self.process.returncode}: {self.log.read_text()}")
                with contextlib.suppress(aiohttp.ClientError):
                    async with http.get(f"http://127.0.0.1:{self.port}/readyz") as answer:
                        if answer.status == 200:
                            return
                await asyncio.sleep(0.01)

    async def kill(self) -> None:
        """End it as a power switch does."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)
        await self.process.wait()

    async def stop(self) -> int:
        """End it as systemd does; returns its exit code."""
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        async with deadline():
            return await self.process.wait()


async def start_process(
    home: Path,
    *,
    script: Sequence[Mapping[str, Any]] = (),
    faults: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
    path: Path | None = None,
    wrap: Sequence[str] = (),
    port: int | None = None,
    module: str = "exuvia",
) -> GatewayProcess:
    """Start a gateway, on a free port unless one is named; `module` is what Python runs. The caller ends it."""
    home.mkdir(parents=True, exist_ok=True)
    port = port or free_port()
    environment = {
        **os.environ,
        "PYTHONFAULTHANDLER": "1",  # the log of a crashed process has its stacks
        "EXUVIA_TOKEN": TOKEN,
        "EXUVIA__AGENT__MODEL": '"scripted:echo"',
        "EXUVIA__APPROVALS__DEFAULT": '"allow"',
        "EXUVIA__AGENT__TITLES": "false",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *([str(path)] if path else [])]),
        **(settings or {}),
    }
    if script:
        place = home / "script.jsonl"
        place.write_text("".join(json.dumps(line) + "\n" for line in script))
        environment |= {
            "EXUVIA__AGENT__MODEL": '"scripted:script"',
            "EXUVIA__PROVIDERS__SCRIPTED__SCRIPT": json.dumps(str(place)),
        }
    if path:
        environment["EXUVIA__PLUGINS__ALLOW"] = '["stamping"]'
    command = [sys.executable, "-m", module, "run", "--home", str(home), "--port", str(port)]
    if faults:
        strace = shutil.which("strace")
        assert strace, "strace is needed here; `apt-get install strace` brings it"
        # -D: the gateway stays our child, so that it can be killed itself
        command = [strace, "-D", "-f", "-qq", "-o", os.devnull, *faults, *command]
    log = home / f"gateway-{port}.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *wrap, *command, env=environment, stdout=output, stderr=output, stdin=asyncio.subprocess.DEVNULL
        )
    return GatewayProcess(process, port, log)


@contextlib.asynccontextmanager
async def gateway_process(home: Path, **options: Any) -> AsyncIterator[GatewayProcess]:
    """Start a gateway with the options of `start_process`, and have it ended afterwards, whatever happens."""
    running = await start_process(home, **options)
    try:
        async with aiohttp.ClientSession() as http:
            await running.ready(http)
        yield running
    finally:
        await running.kill()


def journals(home: Path) -> list[list[dict[str, Any]]]:
    """The whole lines of the journals of a home. The last one of a journal may be under way."""
    paths = sorted((home / "sessions").glob("*.jsonl"))
    return [[json.loads(line) for line in path.read_bytes().rpartition(b"\n")[0].splitlines()] for path in paths]


async def verify(home: Path) -> int:
    """The exit code of `exuvia sessions verify`."""
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "exuvia", "sessions", "verify", "--home", str(home)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.DEVNULL,
    )
    return await process.wait()
