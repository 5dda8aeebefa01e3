"""The transport to a server that is a program in the sandbox of commands.

The sandbox ends the server with everything that it started, also if the gateway is killed. The server sees the programs of
the system, the workspace and the folders that the configuration lists, and no network.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage

from plugins.mcp.definitions import one_visible_line
from plugins.mcp.stdio_transport import END_SECONDS, Messages, ServerEnded, lines, parsed
from plugins.sandbox.policy import Level, Limits, SandboxPolicy
from plugins.sandbox.process import SandboxedProcess, start

_UNLIMITED = 2**50

LIMITS = Limits(cpu_seconds=2**31, disk=_UNLIMITED, output=_UNLIMITED)
"""Those of a command, without the ones that a server would exceed because it runs for months."""


class SandboxedTransport:
    """Starts a server in the sandbox and exchanges messages with it, in a `with` block of the SDK's client.

    Args:
        command: The program, which is searched in the folders of the system, and its arguments.
        env: Variables besides those of every command.
        workspace: The folder that it works in and may change.
        cwd: The folder to run it in, relative to the workspace.
        readable: Files and folders outside of the workspace that it may read.
        level: Returns the level of the sandbox; None if none is accepted.
    """

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        *,
        workspace: Path,
        cwd: str,
        readable: Sequence[str],
        level: Callable[[], Awaitable[Level | None]],
    ) -> None:
        self._command = command
        self._env = env
        self._cwd = cwd
        self._policy = SandboxPolicy(
            workspace=workspace, readable=tuple(Path(each).expanduser() for each in readable), limits=LIMITS
        )
        self._level = level
        self._failure = ""
        self._said = b""
        self.ended = asyncio.Event()

    async def reason(self) -> str:
        """Return why the server ended, with the last line that it wrote and that is no message."""
        last = one_visible_line(self._said.decode(errors="replace"), 300)
        return self._failure or ": ".join(["its process ended", *([last] if last else [])])

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[TransportStreams]:
        """Run the server while the block runs.

        Raises:
            ServerEnded: The sandbox does not work here.
            SandboxFailed: The server cannot be started in it.
        """
        level = await self._level()
        if level is None:
            raise ServerEnded("the sandbox does not work here, see `exuvia doctor`; it is not started without")
        receiving, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        sent, sending = anyio.create_memory_object_stream[SessionMessage](0)
        with receiving, received, sent, sending:
            process, taken = await self._start(level)
            tasks = [asyncio.create_task(self._read(process, receiving)), asyncio.create_task(_write(taken, sending))]
            try:
                yield received, sent
            finally:
                await asyncio.shield(asyncio.ensure_future(self._stop(process, taken, tasks)))

    async def _start(self, level: Level) -> tuple[SandboxedProcess, int]:
        """Start the server, and return it with the descriptor that writes to its standard input."""
        given, taken = os.pipe2(os.O_CLOEXEC)
        try:
            os.set_blocking(taken, False)
            process = await start(
                self._command, self._policy, level=level, environment=self._env, cwd=self._cwd, stdin=given
            )
        except BaseException:
            os.close(taken)
            raise
        finally:
            os.close(given)
        return process, taken

    async def _stop(self, process: SandboxedProcess, taken: int, tasks: Sequence[asyncio.Task[None]]) -> None:
        """End the server: by the end of its input, then by force; by force at once if this is cancelled."""
        try:
            tasks[1].cancel()
            try:
                await asyncio.wait(tasks[1:])
            finally:
                os.close(taken)
            with suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    await self.ended.wait()
        finally:
            tasks[0].cancel()
            await asyncio.wait(tasks[:1])
            await process.kill()

    async def _read(self, process: SandboxedProcess, receiving: Messages) -> None:
        output = process.output()

        async def read(_: int) -> bytes:
            return await anext(output, b"")

        try:
            async for line in lines(read):
                message = parsed(line)
                if message is not None:
                    await receiving.send(message)
                elif isinstance(line, bytes) and line.strip():
                    self._said = line[:4096]
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the client is closing
        except ServerEnded as error:
            self._failure = str(error)
        finally:
            await output.aclose()  # type: ignore[attr-defined] # an async generator
            self.ended.set()
            receiving.close()


async def _write(descriptor: int, sending: MemoryObjectReceiveStream[SessionMessage]) -> None:
    loop = asyncio.get_running_loop()
    try:
        async for message in sending:
            rest = message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
            while rest:
                try:
                    rest = rest[os.write(descriptor, rest) :]
                except BlockingIOError:
                    writable: asyncio.Future[None] = loop.create_future()
                    loop.add_writer(descriptor, _resolve, writable)
                    try:
                        await writable
                    finally:
                        loop.remove_writer(descriptor)
    except OSError:
        sending.close()  # the end of the output says more


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
